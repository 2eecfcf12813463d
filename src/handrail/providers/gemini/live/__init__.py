"""The format of Gemini Live."""
