"""A process of its own that approves a held call: `booking_worker.py ARTIFACT FOLDER REQUEST TOKEN`, settings on its input."""

import asyncio
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from handrail import Registry, Runtime
from handrail_reference.services.calendar.opening import open_calendar


async def main(artifact: str, folder: str, request: str, token: str) -> None:
    registry = Registry.load(artifact)
    registry.lock()
    calendar = open_calendar(Path(folder), **json.load(sys.stdin))
    calendar._clock = datetime(2026, 1, 12, 9, tzinfo=UTC).timestamp
    store = f"sqlite:////{(Path(folder) / 'handrail.db').as_posix().lstrip('/')}"
    options = {"policy": {"lease_ms": 20}, "capabilities": {"calendar": calendar}}
    async with Runtime(registry, store=store, **options) as runtime:
        response = await runtime.approve(request, token=token)
        sys.stdout.write(json.dumps(response.to_dict()))
    await calendar.close()


asyncio.run(main(*sys.argv[1:]))
