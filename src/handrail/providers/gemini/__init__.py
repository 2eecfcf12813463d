"""Gemini: `generateContent` over HTTP, and Gemini Live."""
