"""Prints the kept list: `python -m tests.agents.voice.spoken.listing`. One utterance a line, as JSON, with its kind."""

from __future__ import annotations

import json
import sys
from collections import Counter

from tests.agents.voice.spoken.approvals import approvals, is_held_back
from tests.agents.voice.spoken.negatives import negatives


def main() -> None:
    for kind, text in negatives():
        print(json.dumps({"kind": kind, "text": text}, ensure_ascii=True))
    for text in approvals():
        kind = "approval_held_back" if is_held_back(text) else "approval"
        print(json.dumps({"kind": kind, "text": text}, ensure_ascii=True))
    counted = Counter(kind for kind, _ in negatives())
    print(f"{sum(counted.values())} negatives of {len(counted)} kinds, {len(approvals())} approvals", file=sys.stderr)


if __name__ == "__main__":
    main()
