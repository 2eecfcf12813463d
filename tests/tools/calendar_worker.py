"""A process of its own on the store and calendar of a test: `python calendar_worker.py ACTION ARTIFACT FOLDER …`."""

import asyncio
import sys
from pathlib import Path

import orjson

from handrail import Registry, Runtime
from handrail.testing import CrashAt
from handrail_reference.services.calendar.embedded import EmbeddedCalendar


async def main(action: str, artifact: str, folder: str, *rest: str) -> None:
    registry = Registry.load(artifact)
    registry.lock()
    folder = str(Path(folder).absolute())
    # Set up as the test's own: what a person was shown must be what this process finds too.
    calendar = EmbeddedCalendar(Path(folder) / "calendar.db", names=("team",), time_zone="Europe/Zagreb")
    crash = CrashAt(rest[2], kill=True) if action == "die" else None
    store = f"sqlite:////{(Path(folder) / 'handrail.db').as_posix().lstrip('/')}"
    # A short lease, so that what a dead process left is soon known to be unknown.
    options = {"policy": {"lease_ms": 20}, "crash": crash}
    async with Runtime(registry, store=store, capabilities={"calendar": calendar}, **options) as runtime:
        if action in ("approve", "die"):
            response = await runtime.approve(rest[0], token=rest[1])
        else:
            session = await runtime.resume_session(rest[0], token=rest[1])
            response = await session.call("calendar_create_event", orjson.loads(rest[2]), call_id=rest[3])
        sys.stdout.write(orjson.dumps(response.to_dict()).decode())
    await calendar.close()


asyncio.run(main(*sys.argv[1:]))
