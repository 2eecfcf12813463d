"""Voice over a WebSocket: the protocol `handrail.voice.v1`, which docs/voice.md says in words and `/asyncapi.json` to programs.

`exchange.py` gives out tickets and brings clients and conversations together; a `Line` (`line.py`) stands for one conversation
and outlives its clients, a `Caller` (`caller.py`) for one client's socket. `protocol.py` is that socket under uvicorn.
"""
