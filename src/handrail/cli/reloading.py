"""New tools in a server that runs: rebuilt when a file of theirs changes (development), or taken from a new artifact when an
operator says so (`handrail deploy`, SIGHUP). Whatever is wrong with them is reported in one sentence, and the old ones stay.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from handrail.build.compiler import BuildPlan
from handrail.build.watch import INTERVAL_SECONDS, WatchedFiles
from handrail.cli.deployments import following, marked_deployment
from handrail.contract.errors import HandrailError
from handrail.registry.host_policy import HostPolicy
from handrail.runtime.core import RuntimeCore
from handrail.settings import FILE

_LOG = logging.getLogger("handrail.reload")
_BUILD_SECONDS = 120.0
_MAX_FINDINGS = 20

Tell = Callable[[Mapping[str, Any]], None]


class ToolReloader:
    """Takes new tools into one runtime. `tell` is given what every open conversation shows; `host` reads again what this host
    says about its tools, which is in force with them."""

    def __init__(self, runtime: RuntimeCore, artifact: Path, tell: Tell, host: Callable[[], HostPolicy]) -> None:
        self._runtime = runtime
        self._artifact = artifact
        self._tell = tell
        self._host = host
        self._taking = asyncio.Lock()

    async def watch(self, plan: BuildPlan) -> None:
        """Development: build again after every change of a tool's file or of the settings, and take what was built."""
        watched = await asyncio.to_thread(WatchedFiles, plan, plan.project / FILE)
        while True:
            await asyncio.sleep(INTERVAL_SECONDS)
            if not await asyncio.to_thread(watched.have_changed):
                continue
            try:
                await self._rebuild(plan)
            except Exception:  # noqa: BLE001  # whatever it was, the server continues with what it has
                _LOG.exception("The tools could not be built again; the old ones stay")

    async def follow_deployments(self) -> None:
        """Production: take the artifact whenever `handrail deploy` says that there is a new one."""
        seen = marked_deployment(self._artifact)
        with following(self._artifact) as place:
            place.answer(seen, self._runtime.registry.version)
            while True:
                await asyncio.sleep(INTERVAL_SECONDS)
                now = marked_deployment(self._artifact)
                if now != seen:
                    seen = now
                    refused = await self.deploy()
                    place.answer(now, self._runtime.registry.version, refused)

    async def deploy(self) -> str:
        """Take the artifact as it is now. One that cannot be used is named, and the old tools stay; that sentence, or nothing."""
        try:
            return await self._take(())
        except Exception as error:  # noqa: BLE001  # whatever it was, the server continues with what it has, and answers
            _LOG.exception("The new tools could not be taken; the old ones stay")
            return f"The new tools could not be taken; the old ones stay: {type(error).__name__}."

    async def _rebuild(self, plan: BuildPlan) -> None:
        # In a process of its own: modules that were imported here would stay as they were, and a build takes the processor.
        building = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "handrail", "build", "--json"),
            cwd=plan.project,
            env={**os.environ, "PYTHONUTF8": "1"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await asyncio.wait_for(building.communicate(), _BUILD_SECONDS)
        except BaseException:
            if building.returncode is None:
                building.kill()
                await building.wait()
            raise
        try:
            built: dict[str, Any] = json.loads(out)
        except ValueError:
            self._refuse(_last_line(err) or "The tools could not be built.", ())
            return
        findings = [_finding(one) for one in built["findings"]]
        if not built["written"]:
            self._refuse(f"The tools do not build; the old ones stay: {_first(findings)}", findings)
        else:
            await self._take(findings)

    async def _take(self, findings: Sequence[Mapping[str, Any]]) -> str:
        """Why the new tools were refused; empty if they were not."""
        runtime = self._runtime
        async with self._taking:
            before = runtime.registry.snapshot()
            try:
                host = await asyncio.to_thread(self._host)
                newer = await asyncio.to_thread(runtime.registry.read_again, host)
                if newer.version == before.version and host == runtime.registry.host:
                    return ""
                await runtime.take_registry(newer)
                runtime.registry.host = host
            except HandrailError as error:
                sentence = f"The new tools cannot be used; the old ones stay: {error}"
                self._refuse(sentence, findings)
                return sentence
        hashes = {tool.tool_id: tool.hash for tool in before}
        changed = sorted(
            {tool.tool_id for tool in newer if hashes.get(tool.tool_id) != tool.hash} | (hashes.keys() - newer.tools)
        )
        _LOG.info("New tools, version %s: %s", newer.version, ", ".join(changed) or "none changed")
        if runtime.registry.environment == "development":
            facts = {"ok": True, "version": newer.version, "changed": changed[:_MAX_FINDINGS]}
            self._tell({**facts, "findings": list(findings[:_MAX_FINDINGS])})
        return ""

    def _refuse(self, sentence: str, findings: Sequence[Mapping[str, Any]]) -> None:
        _LOG.error("%s", sentence)
        self._runtime.audit.emit("registry_refused", {"ok": False, "message": sentence})
        if self._runtime.registry.environment == "development":
            self._tell({"ok": False, "message": sentence, "findings": list(findings[:_MAX_FINDINGS])})


def _finding(one: Mapping[str, Any]) -> dict[str, Any]:
    return {name: one.get(name) for name in ("severity", "rule", "tool", "place", "message")}


def _first(findings: Sequence[Mapping[str, Any]]) -> str:
    errors = [one for one in findings if one["severity"] == "error"]
    first = next(iter(errors or findings), None)
    if first is None:
        return "the build says nothing more."
    more = f" ({len(errors)} problems in all)" if len(errors) > 1 else ""
    return f"{first['tool']}: {first['message']}{more}"


def _last_line(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
