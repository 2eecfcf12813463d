"""Text from users, files and models, made safe to show: characters that hide, steer a terminal or reorder are written out."""

from handrail.contract.hidden_characters import escaped

__all__ = ["escaped"]
