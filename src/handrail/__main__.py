"""`python -m handrail` is `handrail`."""

from handrail.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
