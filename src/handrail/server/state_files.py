"""Where a server keeps its state: conversations and keys, beside the store.

Apart from the assembly, because `handrail users` and `handrail doctor` read these files without the web framework.
"""

from __future__ import annotations

from pathlib import Path

from handrail.app import store_url
from handrail.server.host.conversation_store import ConversationStore
from handrail.settings import Settings


def open_conversations(settings: Settings) -> ConversationStore:
    """Beside the store; in memory if the store is."""
    kept = store_url(settings).startswith("memory:")
    return ConversationStore(None if kept else settings.project / settings.server_conversations)


def keys_path(settings: Settings) -> Path:
    return settings.project / settings.server_keys_file
