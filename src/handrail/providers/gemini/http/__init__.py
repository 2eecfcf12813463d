"""The format of Gemini's `generateContent`."""
