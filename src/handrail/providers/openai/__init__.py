"""OpenAI: Chat Completions, Responses and Realtime."""
