"""The ways in: a directory of three files, or a decorator. Each ends in the same frozen definition."""
