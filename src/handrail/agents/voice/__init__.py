"""The voice agent: a spoken conversation in a session, over any live model and without any socket to the user.

`agent.py` begins a conversation and `live_session.py` holds it together; `host_port.py` is what a host has to know.
"""

from __future__ import annotations
