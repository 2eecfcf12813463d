"""Governed execution: one pipeline between a model's call and a handler."""
