"""The format of OpenAI Responses."""
