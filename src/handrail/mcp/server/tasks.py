"""The tasks extension: a call that is held, or takes long, is answered with a task, whose outcome the client looks for
later.

A task is a document of the store with everything that its call was made of. While its process lives, that one knows how the
call goes: it stores what the call asks, and looks for answers and a wish to cancel that came to another process. When it has
died, whoever is asked makes the call again under its first key: a writing call meets its execution in the ledger, a reading
one runs anew, and asks anew.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from handrail.contract.documents import Document
from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import ErrorType
from handrail.contract.store import Store
from handrail.mcp.server.governed_calls import CallKey
from handrail.mcp.server.options import McpOptions, Principal

_TASKS = "mcp-task"
_POLL_MS = 500
_TRIES = 20
TERMINAL = frozenset({"completed", "failed", "cancelled"})


class Tasks:
    """The tasks of a server, as they are stored."""

    def __init__(self, store: Store, options: McpOptions, owner: str) -> None:
        self._store = store
        self._keep_ms = options.keep_seconds * 1000
        self._owner = owner

    async def create(
        self, who: Principal, key: CallKey, name: str, args: Any, call_id: str, *, hold_id: str | None = None
    ) -> Document:
        now = await self._store.now()
        body = {
            "client": who.client,
            "tool": name,
            "args": args,
            "input": key.input_id,
            "session": key.session_id,
            "call": call_id,
            "owner": self._owner,
            "status": "working",
            "created": now,
            "updated": now,
            "hold": hold_id,
        }
        document = Document(
            kind=_TASKS,
            id=f"task_{secrets.token_urlsafe(24)}",
            tenant=who.tenant,
            user=who.user,
            body=body,
            expires_at=now + self._keep_ms,
            session=key.session_id,
        )
        _, kept = await self._store.documents.put(document)
        return kept

    async def read(self, task_id: str) -> Document | None:
        """The task as it is stored, for the process that carries it out."""
        return await self._store.documents.get(_TASKS, task_id)

    async def find(self, who: Principal, task_id: str) -> Document:
        """The task of this principal; another's does not exist for it."""
        found = await self._store.documents.get(_TASKS, task_id)
        # One answer for both: whether another's task exists is nobody's business.
        if found is None or (found.tenant, found.user, found.body["client"]) != (who.tenant, who.user, who.client):
            raise MCPError(code=INVALID_PARAMS, message="There is no such task.", data={"taskId": task_id[:200]})
        return found

    async def is_orphaned(self, task: Document) -> bool:
        """Whether the process that carried it out is gone."""
        owner = task.body["owner"]
        return owner != self._owner and not await self._store.owner_lives(owner)

    async def adopt(self, task: Document) -> Document | None:
        """Take over a task that nobody carries out; None if another process was first."""
        # Questions and answers belonged to a handler that is gone with its process.
        mine = {"owner": self._owner, "questions": {}, "answers": {}, "cancel": False}
        kept, now = await self._store.documents.put(replace(task, body={**task.body, **mine}))
        return now if kept else None

    async def change(self, task: Document, **facts: Any) -> Document:
        """Keep what has changed, also over what another process has changed meanwhile, but not over the task's end."""
        # Others write the same document; each try starts from what they wrote.
        for _ in range(_TRIES):
            kept, task = await self._kept(task, facts)
            if kept or task.body["status"] in TERMINAL:
                break
        return task

    async def publish_questions(self, task: Document, questions: Mapping[str, Any]) -> bool:
        """This is asked now, and what others sent is in hand; False if they have sent more since the task was read."""
        kept, _ = await self._kept(task, {"questions": questions, "answers": {}, "cancel": False})
        return kept

    async def send_to_owner(
        self, task: Document, *, cancel: bool = False, answers: Mapping[str, Any] | None = None
    ) -> bool:
        """An answer or a cancellation, for the process that carries the task out; whether it will find it."""
        for _ in range(_TRIES):
            if task.body["status"] in TERMINAL:
                return True
            wish = {"cancel": cancel or task.body.get("cancel", False)}
            kept, task = await self._kept(
                task, {**wish, "answers": {**task.body.get("answers", {}), **(answers or {})}}
            )
            if kept:
                return True
        return False

    async def _kept(self, task: Document, facts: Mapping[str, Any]) -> tuple[bool, Document]:
        now = await self._store.now()
        body = {**task.body, **facts, "updated": now}
        return await self._store.documents.put(replace(task, body=body, expires_at=now + self._keep_ms))

    async def settle(self, task: Document, response: ToolResponse, result: Mapping[str, Any]) -> Document:
        """The call has ended."""
        current = await self._store.documents.get(_TASKS, task.id)
        # Cancelled or expired meanwhile: a task's end is final for its client.
        if current is None or current.body["status"] in TERMINAL:
            return current or task
        kind = response.error.type if response.error is not None else None
        if kind is ErrorType.CANCELLED:
            return await self.change(current, status="cancelled")
        if kind is ErrorType.INTERNAL:
            # The envelope with it: only that says whether a write may have happened all the same.
            data = result["structuredContent"]
            error = {"code": INTERNAL_ERROR, "message": data["error"]["message"], "data": data}
            return await self.change(current, status="failed", error=error)
        return await self.change(current, status="completed", result={"resultType": "complete", **result})

    def described(
        self, task: Document, questions: Mapping[str, Any] | None = None, *, detailed: bool = True
    ) -> dict[str, Any]:
        """The task as the client sees it; when it is made, without what became of it."""
        body = task.body
        status = "input_required" if questions and body["status"] == "working" else body["status"]
        told: dict[str, Any] = {
            "taskId": task.id,
            "status": status,
            "createdAt": _iso(body["created"]),
            "lastUpdatedAt": _iso(body["updated"]),
            "ttlMs": self._keep_ms,
            "pollIntervalMs": _POLL_MS,
        }
        if body.get("message"):
            told["statusMessage"] = body["message"]
        if detailed and status == "input_required":
            told["inputRequests"] = dict(questions or {})
        if detailed and "result" in body:
            told["result"] = body["result"]
        if detailed and "error" in body:
            told["error"] = body["error"]
        return told


def key_of(task: Document) -> CallKey:
    """The key that its call was made under."""
    return CallKey(task.body["input"], task.body["session"], again=True)


def _iso(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
