"""Strict JSON, its canonical form, and validation with defaults: what every value passes on its way into a call.

The package knows JSON and JSON Schema and nothing of tools, sessions or providers; it imports only `contract`.
"""
