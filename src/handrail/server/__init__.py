"""The server: sessions, messages, confirmations, the catalogue and the operator's view over HTTP, in front of one runtime.

`application.create` makes the ASGI application, `running.serve` runs it. Nothing here decides what a call may do: that is the
pipeline's part. This package decides who may ask, and carries events to whoever listens.
"""
