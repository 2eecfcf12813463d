"""Tools of other frameworks, and plain functions, taken over as governed definitions."""
