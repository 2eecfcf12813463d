"""What is given out as it is: the console's files, drawn images, the description of the API, and signs of life."""

from __future__ import annotations

import asyncio
import mimetypes
from hashlib import sha256
from importlib.resources import files as package_files
from pathlib import Path

from starlette.responses import FileResponse, Response

from handrail.server.api.http import ApiRequest, HttpProblem, answer
from handrail.server.api.openapi import document

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".woff2": "font/woff2",
    ".png": "image/png",
    ".ico": "image/x-icon",
}
_PAGE = (
    b"<!doctype html><html lang=en><meta charset=utf-8><title>Handrail</title><p>Handrail is running. "
    b"This installation has no console; the API is described in <a href=/openapi.json>/openapi.json</a>.</p></html>"
)


def console_files() -> dict[str, tuple[bytes, str, str]]:
    """Every file of the console, read once: a request can name one of these and nothing else."""
    found: dict[str, tuple[bytes, str, str]] = {}
    root = Path(str(package_files("handrail"))) / "console"
    for path in sorted(root.rglob("*")) if root.is_dir() else ():
        kind = _TYPES.get(path.suffix)
        if kind is None or not path.is_file():
            continue
        content = path.read_bytes()
        name = path.relative_to(root).as_posix()
        found[name] = (content, kind, f'"{sha256(content).hexdigest()[:20]}"')
    return found


async def home(request: ApiRequest) -> Response:
    return _file(request, "index.html") or Response(_PAGE, media_type="text/html")


async def console(request: ApiRequest) -> Response:
    found = _file(request, str(request.path_params["name"]))
    if found is None:
        raise HttpProblem(404, "The console has no such file.")
    return found


def _file(request: ApiRequest, name: str) -> Response | None:
    kept = request.context.console.get(name)
    if kept is None:
        return None
    content, kind, tag = kept
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"ETag": tag})
    return Response(content, media_type=kind, headers={"ETag": tag})


async def favicon(request: ApiRequest) -> Response:
    icons = [name for name in request.context.console if name.startswith(("favicon.", "icon."))]
    found = _file(request, icons[0]) if icons else None
    return found or Response(status_code=204)


async def image(request: ApiRequest) -> Response:
    """A drawn image. Its id is the only thing that can name a file."""
    service = request.context.runtime.capabilities.get("images")
    find = getattr(service, "path_of", None)
    path = await asyncio.to_thread(find, str(request.path_params["image"])) if find is not None else None
    if path is None:
        raise HttpProblem(404, "There is no such image.")
    kind = mimetypes.types_map.get(path.suffix, "application/octet-stream")
    return FileResponse(path, media_type=kind, headers={"Cache-Control": "private, max-age=3600"})


async def openapi(request: ApiRequest) -> Response:
    return answer(document())


async def alive(request: ApiRequest) -> Response:
    """The process answers."""
    return answer({"ok": True})


async def ready(request: ApiRequest) -> Response:
    """Whether this process should be given work."""
    checks = await request.context.readiness.checks()
    good = all(checks.values())
    return answer({"ok": good, "checks": checks}, 200 if good else 503)
