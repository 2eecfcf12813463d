"""The format of OpenAI Chat Completions, and of the many servers that speak it."""
