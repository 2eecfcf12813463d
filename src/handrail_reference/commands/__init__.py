"""Commands of `handrail` that work on the reference services; found by the entry points `handrail.commands`."""
