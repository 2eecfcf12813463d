"""The values that every part speaks: definition, call, envelope, errors, intents, ports. Standard library only."""
