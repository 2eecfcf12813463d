"""The format of OpenAI Realtime (general availability; the beta's shape is retired)."""
