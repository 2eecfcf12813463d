"""A real server process over the test tools and the model that does as it is told; killed and started again by a test.

`python worker.py FOLDER PORT`: prints one line when it listens.
"""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from tests.server.kit import put_together

from handrail.server.options import Options
from handrail.server.uvicorn_server import bound, make_server


async def main(folder: Path, port: int) -> None:
    options = replace(Options(), port=port)
    made, _, _ = put_together(
        folder, options=options, store=f"sqlite:////{folder}/store.db", audited=True, policy={"lease_ms": 1_000}
    )
    socket = bound(options)
    await make_server(made.app, options, made.sessions.drain, lambda: print("ready", flush=True)).serve(
        sockets=[socket]
    )


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
