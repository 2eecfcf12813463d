"""The format of Anthropic's Messages API."""
