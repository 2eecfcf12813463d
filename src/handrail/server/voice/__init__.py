"""Voice over a WebSocket: the protocol `handrail.voice.v1`, which docs/voice.md says in words and `/asyncapi.json` to programs.

`admission.py` gives out tickets and brings clients and conversations together. A `ConversationHost` stands for one conversation
and outlives its clients, a `ClientSocket` for one client's socket, which is a `VoiceProtocol` under uvicorn.
"""
