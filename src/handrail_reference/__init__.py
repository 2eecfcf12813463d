"""The reference tools of Handrail and what they need: a package like any other, found by entry points."""
