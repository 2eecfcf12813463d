"""Helpers for tool authors' tests: build a folder of tools and call them through the real pipeline, under policy.

`open_tools` is enough for most tests; `open_service` opens one of the project's services; `VirtualClock`, `ScriptedModel` and
`CrashAt` are for what takes time, many messages, or goes wrong; `PlayedModel` is a model for agents. Spoken conversations have
`hosting`, `recording` and `virtual_time` beside these.
"""

from handrail.testing.clock import VirtualClock, settle
from handrail.testing.crash import CrashAt, Crashed
from handrail.testing.scripted_model import PlayedModel, ScriptedModel
from handrail.testing.toolkit import ToolKit, open_service, open_tools

__all__ = [
    "CrashAt",
    "Crashed",
    "PlayedModel",
    "ScriptedModel",
    "ToolKit",
    "VirtualClock",
    "open_service",
    "open_tools",
    "settle",
]
