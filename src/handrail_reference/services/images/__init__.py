"""Images behind the `images` capability: generated, kept in a folder under the hash of their content, found again by id.

The embedded engine draws a *placeholder card*: the prompt itself, set as a poster, which says that it is one. It needs no
account, no network and no model; an engine that really paints takes its place behind the same port.
"""

from handrail_reference.services.images.service import Images, Picture, open_images

__all__ = ["Images", "Picture", "open_images"]
