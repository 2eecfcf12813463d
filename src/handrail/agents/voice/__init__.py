"""The voice agent: a spoken conversation in a session, over any live model and without any socket to the user.

`agent.py` begins a conversation, `state/` decides what happens in it, and `voice_session.py` carries that out.
`host_port.py` is what a host has to know.
"""

from __future__ import annotations
