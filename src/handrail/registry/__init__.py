"""The artifact, loaded and locked in a process: `Registry`, and the immutable `Snapshot` that a session is pinned to."""

from handrail.registry.registry import Registry
from handrail.registry.snapshot import LoadedTool, Snapshot

__all__ = ["LoadedTool", "Registry", "Snapshot"]
