"""Check this machine and project, and say what to do about what is wrong."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sqlite3
import sys
import tomllib
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from handrail.app import (
    audit_key,
    build_plan,
    has_store,
    live_missing,
    open_registry,
    open_token_checker,
    service_factory,
    service_time_zones,
    store_url,
    time_zone_of,
)
from handrail.authoring.services import is_available
from handrail.build.compiler import build
from handrail.build.scaffold import SCHEMA_COPY, editor_schema
from handrail.build.writer import is_current
from handrail.cli.extras import installed_extras
from handrail.cli.output import authors_speak_aside, count, print_json, show
from handrail.cli.project import current_settings, with_reference_tools
from handrail.contract.errors import HandrailError, ServiceError, install_command
from handrail.contract.model import Model
from handrail.observe.audit_files import audit_files, newest_facts
from handrail.plugins import SERVICES, entry_points_of
from handrail.registry.registry import environment_from
from handrail.runtime.audit_recovery import older_than_audit
from handrail.runtime.services import Services, absent_capability, call_hook, reason_of
from handrail.settings import FILE, Settings
from handrail.sqlite_files import check_database, check_folder
from handrail.standard_runtime import own_capabilities
from handrail.stores import open_store
from handrail.stores.maintenance import open_access
from handrail.stores.migrations import MIGRATIONS

EXAMPLES = "examples:\n  handrail doctor\n  handrail doctor --json"
_NEEDED = ("jsonschema-rs", "orjson")
_PROBE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    ok: bool
    message: str
    advice: bool = False
    """Nothing is wrong, and something could be better."""

    @property
    def mark(self) -> str:
        return ("note" if self.advice else "ok  ") if self.ok else "FAIL"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the checks as JSON")


def run(options: Namespace) -> int:
    checks = list(_checks())
    if options.json:
        print_json([{"name": check.name, "ok": check.ok, "message": check.message} for check in checks])
    else:
        for check in checks:
            show(f"{check.mark}  {check.name:<13} {check.message}")
    return 0 if all(check.ok for check in checks) else 1


def _checks() -> Iterator[Check]:
    yield Check("python", sys.version_info >= (3, 11), f"{sys.version.split()[0]} (3.11 or newer is needed)")
    for name in _NEEDED:
        try:
            yield Check(name, True, version(name))
        except PackageNotFoundError:
            yield Check(name, False, f"not installed; install it with `pip install {name}`")
    yield Check("sqlite", sqlite3.sqlite_version_info >= (3, 35), f"{sqlite3.sqlite_version} (3.35 or newer is needed)")
    yield _extras()
    yield _environment()
    try:
        settings = current_settings()
    except HandrailError as error:
        yield Check("settings", False, str(error))
        return
    found = (settings.project / FILE).is_file()
    yield Check("settings", True, f"{FILE} is right" if found else f"no {FILE} here or above; defaults apply")
    yield _zone(settings)
    yield from _models(settings)
    yield _voice(settings)
    yield from _legacy_conversations(settings)
    yield from _store(settings)
    yield _folder(settings)
    yield from _store_age(settings)
    yield _audit_key(settings)
    yield from _identity(settings)
    yield from _connections(settings)
    needed: dict[str, str] = {}
    yield from _project_checks(settings, needed)
    yield from _services(settings, needed)


def _services(settings: Settings, needed: Mapping[str, str]) -> Iterator[Check]:
    """Every service that is configured, or that a tool needs: opened, asked by its own `check`, and closed."""
    supplied = {*settings.services, *entry_points_of(SERVICES), *own_capabilities()}
    for name in sorted(needed.keys() - supplied):
        yield Check(f"service {name}", False, absent_capability(needed[name], name, supplied))
    for name in sorted({*settings.services, *(one for one in needed if is_available(one, settings.services))}):
        try:
            with authors_speak_aside():
                message = asyncio.run(_try_service(settings, name))
        except HandrailError as error:
            yield Check(f"service {name}", False, str(error))
        except Exception as error:  # noqa: BLE001 - a service's check is any code
            yield Check(f"service {name}", False, f'the check of the service "{name}" failed: {reason_of(error)}')
        else:
            yield Check(f"service {name}", True, message)


async def _try_service(settings: Settings, name: str) -> str:
    services = Services([service_factory(settings, name)])
    unclosed: list[str] = []
    try:
        said = await call_hook((await services.open())[name], "check")
    finally:
        unclosed = await services.close()
    if unclosed:
        raise ServiceError(unclosed[0])
    return said if isinstance(said, str) and said else "was opened and closed"


def _extras() -> Check:
    """A statement, and no failure: whatever needs one that is not there says so."""
    extras = installed_extras()
    here = ", ".join(name for name, there in extras.items() if there) or "none"
    missing = ", ".join(name for name, there in extras.items() if not there)
    rest = f"; not installed: {missing}; run {install_command('handrail[NAME]')}" if missing else ""
    return Check("extras", True, here + rest)


def _zone(settings: Settings) -> Check:
    """A difference may be meant, so it is reported without a failure."""
    try:
        zone = time_zone_of(settings, os.environ)
    except HandrailError as error:
        return Check("time zone", False, str(error))
    others = [
        f'[services.{name}] has "{other}"' for name, other in service_time_zones(settings).items() if other != zone
    ]
    differ = (
        f" for conversations, but {' and '.join(others)}: a time that a person names is meant in the first"
        if others
        else ""
    )
    return Check("time zone", True, zone + differ)


def _models(settings: Settings) -> Iterator[Check]:
    """Which model answers and why; then what is offered. A provider on another machine is not asked."""
    from handrail.cli.model_lines import offer_lines  # what only this check needs
    from handrail.clients import address_of, text_client
    from handrail.text_model import choose_working_model, open_model

    try:
        choice = choose_working_model(settings)
    except HandrailError as error:
        # A project that only builds and calls tools needs no model: nothing is wrong unless one was asked for.
        yield Check("model", not settings.agent_model, str(error), advice=True)
        return
    checked = Check("model", True, choice.sentence.removesuffix("."))
    client = text_client(choice.model.partition(":")[0])
    if client is not None and not client.problem:  # one that has a check of its own has just passed it
        address = address_of(choice.model, environment=os.environ, base_url=choice.base_url)
        checked = _reached("model", choice.model, address, "agent")
    if choice.model.startswith("local:"):
        checked = asyncio.run(_loaded(open_model(settings, choice)))
    yield checked
    for line in offer_lines(choice):
        yield Check("model offer", True, line.removesuffix("."), advice=True)


async def _loaded(model: Model) -> Check:
    """Load a model of this machine and unload it, to say what it costs."""
    from handrail.cli.model_lines import load_model  # what only this check needs

    try:
        return Check("model", True, " ".join(await load_model(model)).removesuffix("."))
    except HandrailError as error:
        return Check("model", False, str(error))
    finally:
        await model.close()


def _voice(settings: Settings) -> Check:
    missing = live_missing(settings)
    if missing is not None or not settings.voice_model:
        return Check("voice", missing is None, missing or "the text model, with the client's own voice")
    return _reached("voice", settings.voice_model, settings.voice_base_url.strip(), "voice")


def _reached(check: str, model: str, address: str, section: str) -> Check:
    """Whether somebody listens on this machine's own address; one elsewhere is not troubled for a look."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    if host not in ("localhost", "127.0.0.1", "::1"):
        return Check(check, True, f'"{model}" has what it needs; whether it answers was not tried')
    secure = parts.scheme in ("https", "wss")
    address = urlunsplit(
        parts._replace(netloc=parts.netloc.rpartition("@")[2], query="")
    )  # without a password or token
    try:
        socket.create_connection((host, parts.port or (443 if secure else 80)), timeout=_PROBE_SECONDS).close()
    except OSError:
        sentence = f'nobody listens at {address}; start the server of "{model}", or set "base_url" in [{section}]'
        return Check(check, False, sentence)
    return Check(check, True, f'"{model}" has what it needs, and somebody listens at {address}')


def _environment() -> Check:
    try:
        return Check("environment", True, environment_from(os.environ.get("HANDRAIL_ENV")))
    except HandrailError as error:
        return Check("environment", False, str(error))


def _store(settings: Settings) -> Iterator[Check]:
    """Whether the store can be used. One that is not there yet is not made: looking must leave nothing behind."""
    url = store_url(settings)
    path = Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None
    if path is not None and not path.exists():
        yield _file_check("store", lambda: check_folder(path.parent, f"{path.name} is made at the first start"))
    elif path is None and not url.startswith("memory:"):
        yield from _server(url)
    else:
        yield _opened_store(url, path)


def _opened_store(url: str, path: Path | None) -> Check:
    try:
        asyncio.run(_open_and_close(url))
    except HandrailError as error:
        return Check("store", False, str(error))
    if path is None:
        return Check("store", True, "kept in memory")
    return _file_check("store", lambda: check_database(path, lambda: None, "", ".owners"))


def _server(url: str) -> Iterator[Check]:
    try:
        open_store(url)  # which refuses a URL that cannot be read, and names a driver that is missing
    except HandrailError as error:
        yield Check("store", False, str(error))
        return
    from handrail.stores.maintenance.server_checks import server_findings  # only who uses it has its driver

    for found in server_findings(url):
        yield Check("store" if found.name == "store" else f"store {found.name}", found.ok, found.message)


def _file_check(name: str, work: Callable[[], str]) -> Check:
    """What a check of a file says, or what is wrong with it."""
    try:
        return Check(name, True, work())
    except HandrailError as error:
        return Check(name, False, str(error))


async def _open_and_close(url: str) -> None:
    store = open_store(url)
    await store.open()
    await store.close()


def _legacy_conversations(settings: Settings) -> Iterator[Check]:
    """The file of an earlier version, which the next start brings into the store. It is only read: a broken one is described in
    the words of whoever would use it."""
    from handrail.server.legacy_files import check_conversations

    path = settings.project / settings.server_conversations
    if path.exists() and not store_url(settings).startswith("memory:"):
        told = f"{path.name} is brought into the store at the next start"
        yield _file_check("conversations", lambda: check_database(path, lambda: check_conversations(path), told))


def _folder(settings: Settings) -> Check:
    folder = settings.project / settings.audit_directory
    if folder.exists():
        return _file_check("audit", lambda: check_folder(folder, "can be written"))
    there = next(parent for parent in folder.absolute().parents if parent.exists())
    return _file_check("audit", lambda: check_folder(there, "is made at the first call"))


def _store_age(settings: Settings) -> Iterator[Check]:
    """Whether the store knows what its audit log tells of; nothing where there is only one of them, or neither can be read."""
    url, folder = store_url(settings), settings.project / settings.audit_directory
    if url.startswith("memory:") or not has_store(settings) or not audit_files(folder):
        return
    try:
        with closing(open_access(url, read_only=True)) as access:
            if access.version() != MIGRATIONS[-1].version:
                return
        sentence = asyncio.run(_compared(url, folder))
    except HandrailError:
        return  # the check of the store says what is wrong with it
    yield Check(
        "store age", sentence is None, sentence or "no older than the audit log: it knows the newest calls there"
    )


async def _compared(url: str, folder: Path) -> str | None:
    store = open_store(url)
    await store.open()
    try:
        return await older_than_audit(store, lambda: newest_facts(folder))
    finally:
        await store.close()


def _audit_key(settings: Settings) -> Check:
    """A hint, and no failure: a log without a key is whole as well, but whoever may write it can make it so anew."""
    if audit_key(settings) is None:
        advice = "no key: who may write the log can forge it unseen; with HANDRAIL_AUDIT_KEY, `handrail audit verify` finds that"
        return Check("audit key", True, advice, advice=True)
    return Check("audit key", True, "hashes are keyed")


def _identity(settings: Settings) -> Iterator[Check]:
    """What a server needs before it believes a token: rules that can be used, and keys that can be read."""
    if not any(
        getattr(settings, f"identity_{name}") for name in ("jwks", "secret", "issuer", "audience", "algorithms")
    ):
        return
    try:
        if open_token_checker(settings) is None:
            yield Check("identity", False, "[identity] names neither `jwks` nor a secret (HANDRAIL_IDENTITY_SECRET)")
            return
        path = settings.project / settings.identity_jwks
        if settings.identity_jwks and path.is_file() and not json.loads(path.read_bytes()).get("keys"):
            yield Check("identity", False, f"{path.name} has no keys")
            return
    except HandrailError as error:
        yield Check("identity", False, str(error))
    except (OSError, ValueError, AttributeError):
        yield Check("identity", False, f"{Path(settings.identity_jwks).name} cannot be read as a set of keys (JWKS)")
    else:
        yield Check(
            "identity", True, f"tokens of {settings.identity_issuer} are checked; an address of keys was not asked"
        )


def _connections(settings: Settings) -> Iterator[Check]:
    """What `[connections.NAME]` needs before a process can start: the secret of each client, and keys for the credentials."""
    if not settings.connections:
        return
    from handrail.identity.config import check_secret  # what only this check needs
    from handrail.identity.vault import Vault

    for name, config in sorted(settings.connections.items()):
        try:
            check_secret(config)
            yield Check(f"connection {name}", True, "its client has what it needs; the service was not asked")
        except HandrailError as error:
            yield Check(f"connection {name}", False, str(error))
    try:
        Vault(settings.credentials_keys)
        yield Check("credentials", True, f"encrypted with the first of {count(len(settings.credentials_keys), 'key')}")
    except HandrailError as error:
        yield Check("credentials", False, str(error))


def _names_directory(settings: Settings) -> bool:
    """Whether the project says itself where its tools are, as one that `handrail init` made does."""
    path = settings.project / FILE
    written = tomllib.loads(path.read_text(encoding="utf-8")).get("tools", {}) if path.is_file() else {}
    return "directory" in written or "HANDRAIL_TOOLS_DIRECTORY" in os.environ


def _project_checks(settings: Settings, needed: dict[str, str]) -> Iterator[Check]:
    """The tools, their artifact and their handlers; `needed` is filled with the capabilities that the tools name, each with
    a tool that does."""
    chosen = with_reference_tools(settings)
    bare = chosen is not settings
    if bare and _names_directory(settings):  # it was meant to be there
        yield Check("tools", False, f'no folder "{settings.tools_directory}", which [tools] names; make it')
        return
    try:
        with authors_speak_aside():
            result = build(build_plan(chosen))
    except HandrailError as error:
        yield Check("tools", False, str(error))
        return
    needed |= {name: str(entry["toolId"]) for entry in result.entries for name in entry.get("capabilities", ())}
    problems = len(result.errors)
    made = count(len(result.entries), "reference tool" if bare else "tool")
    bare_words = "; they are used where there are none of your own" if bare else ""
    yield Check(
        "tools",
        not problems,
        f"{count(problems, 'problem')}; `handrail build` says what" if problems else f"{made} checked{bare_words}",
    )
    if problems or bare:  # without a project `serve` and `chat` build the reference tools themselves
        return
    current = is_current(result)
    yield Check(
        "artifact",
        current,
        f"current, version {result.version}" if current else "stale or missing; run `handrail build`",
    )
    if current:
        try:
            open_registry(settings)
            yield Check("handlers", True, "every handler is the one that was built")
        except HandrailError as error:
            yield Check("handlers", False, str(error))
    copy = settings.project / SCHEMA_COPY
    if copy.is_file():
        same = copy.read_bytes() == editor_schema().encode()
        yield Check(
            "editor",
            same,
            f"{SCHEMA_COPY} is current"
            if same
            else f"{SCHEMA_COPY} is of another version; delete it and run `handrail new`",
        )
