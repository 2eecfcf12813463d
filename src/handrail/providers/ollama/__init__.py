"""The format of Ollama's chat API."""
