"""The voice agent: a spoken conversation in a session, over any live model and without any socket to the user.

`agent.py` begins a conversation and `talk.py` holds it together; `port.py` is what a host has to know.
"""

from __future__ import annotations
