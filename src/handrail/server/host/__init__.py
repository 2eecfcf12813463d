"""The host of conversations: sessions that are open in this process, their turns, events and stored words.

It knows nothing of HTTP: `api` and `voice` are built on it.
"""
