"""The page on which a person approves held calls. It alone is given the tokens; its address has a secret of its own."""

from __future__ import annotations

import secrets
import time
from html import escape
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from handrail import Runtime
from handrail.events import ConfirmationWanted

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="referrer" content="no-referrer">
<title>Approvals</title><body>{notice}{requests}</body></html>"""
FORM = """<form method="post"><p style="white-space: pre-wrap">{preview}</p>
<input type="hidden" name="id" value="{id}"><input type="hidden" name="token" value="{token}">
<button name="answer" value="approve">Approve</button> <button name="answer" value="decline">Decline</button></form>"""
REPLACED = "A newer request has replaced this one. Approve it only if you want both."


class ApprovalPage:
    """Open requests, and what the person answered."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._open: dict[str, ConfirmationWanted] = {}
        self.path = f"/{secrets.token_urlsafe(16)}"
        routes = [Route(self.path, self._show, methods=["GET"]), Route(self.path, self._answer, methods=["POST"])]
        self.app = Starlette(routes=routes)

    def add(self, request: ConfirmationWanted) -> None:
        """Show this request; a newer form of the same one takes its place."""
        self._open[request.id] = request

    async def _show(self, request: Request) -> Response:
        return self._page("")

    async def _answer(self, request: Request) -> Response:
        form = dict(parse_qsl((await request.body()).decode("ascii", "replace")))
        request_id, token = form.get("id", ""), form.get("token", "")
        if form.get("answer") == "approve":
            response = await self._runtime.approve(request_id, token=token)
        else:
            response = await self._runtime.decline(request_id, token=token)
        if response.error is None or response.error.type != "CONFIRMATION_REQUIRED":
            self._open.pop(
                request_id, None
            )  # otherwise the facts have changed, and the request comes again with the new ones
        return self._page("Done." if response.error is None else response.error.message)

    def _page(self, notice: str) -> Response:
        now = time.time() * 1000
        shown = [self._form(request) for request in self._open.values() if request.expires_at > now]
        requests = "".join(shown) or "<p>Nothing waits for you.</p>"
        text = PAGE.format(notice=f"<p>{escape(notice)}</p>", requests=requests)
        return HTMLResponse(text, headers={"Cache-Control": "no-store"})

    @staticmethod
    def _form(request: ConfirmationWanted) -> str:
        preview = f"{request.preview}\n{REPLACED}" if request.replaced_by else request.preview
        return FORM.format(preview=escape(preview), id=escape(request.id), token=escape(request.token))
