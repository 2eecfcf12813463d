"""Canary tokens: a long random run of calls by people who are connected or not, with tools that leak on purpose. Every
token that the authorization server has given begins with a word that is then searched for in everything that the run has left or
said, and names its account. What each handler was given is noted, and compared outside of it with who was to have it."""

import asyncio
import json
import logging
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from tests.conftest import RecordFigures
from tests.identity.authorization_server import SECRET, AuthorizationServer
from tests.identity.kit import BACK, HANDED_OUT, connections, consent
from tests.runtime.kit import Tools, reading, writing

from handrail import Call, Runtime
from handrail.agents import Conversation, TextAgent
from handrail.identity.connections import Connections
from handrail.observe.tracing import Tracing
from handrail.runtime.session import Session
from handrail.stores import SqliteStore
from handrail.stores.postgres import PostgresStore
from handrail.testing import PlayedModel

CANARY = "canary-"
PEOPLE = tuple(f"person{n}" for n in range(8))
_TURN_CALLS = 10
LEAKY = """
import logging
from handrail import ToolError
from tests.identity.kit import HANDED_OUT


async def execute(args, ctx):
    token = await ctx.secrets.token("example")
    way, _, person = args["q"].split()
    HANDED_OUT.append((person, ctx.user, token))
    if way == "result":
        return {"ok": True, "data": {"token": token, token: [f"Bearer {token}"]}, "meta": {"of": token}}
    if way == "raise":
        raise RuntimeError(f"GET /calendar?access_token={token}")
    if way == "tool_error":
        raise ToolError("TRANSIENT", f"refused {token}", retryable=True, suggestion=token, details=[{"pointer": "", "x": token}])
    if way == "progress":
        ctx.progress(f"with {token}")
    if way == "note":
        ctx.audit.log("used", {"token": token})
    if way == "log":
        ctx.log.warning("using %s", token)
        try:
            raise ValueError(token)
        except ValueError:
            ctx.log.exception("failed")
    if way == "message":
        await ctx.messaging.send({"type": "image", "url": f"/images/{token}.png", "caption": token})
    if way == "bad_result":
        return {"ok": True, "data": {"token": token, "what": object()}}
    return {"ok": True, "data": {"mine": True}}
"""
WAYS = ("result", "raise", "tool_error", "progress", "note", "log", "message", "bad_result", "quiet")
TOOLS = {
    "reads": (reading(capabilities=["secrets"]), LEAKY),
    "writes": (writing(capabilities=["secrets"]), LEAKY),
}


@pytest.fixture
def server() -> Iterator[AuthorizationServer]:
    with AuthorizationServer() as made:
        yield made


class Finder(logging.Handler):
    """Looks for what nobody may see in whatever it is shown, every line of every log included."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(logging.Formatter("%(message)s"))
        self.found: list[str] = []
        self.seen = Counter[str]()
        self.mixed_up: list[str] = []
        self.handed_out = 0

    def compare(self) -> None:
        """What handlers were given, with who was to have it."""
        self.handed_out += len(HANDED_OUT)
        for person, user, token in HANDED_OUT:
            if not (user == person and f"-{person}-" in token):
                self.mixed_up.append(f"a call of {person} ran for {user} with {token}")
        HANDED_OUT.clear()

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith("authlib"):  # the authorization server's own, which knows its tokens
            self.look("log", self.format(record))

    def look(self, kind: str, *shown: object) -> None:
        for one in shown:
            text = one if isinstance(one, str) else json.dumps(one, default=str)
            self.seen[kind] += 1
            if CANARY in text or SECRET in text:
                self.found.append(f"{kind}: {text[:300]}")


@pytest.fixture
def finder() -> Iterator[Finder]:
    made, root = Finder(), logging.getLogger()
    level = root.level
    root.addHandler(made)
    root.setLevel(logging.DEBUG)
    yield made
    root.removeHandler(made)
    root.setLevel(level)


class SpansFor(SpanExporter):
    """Shows each span of the real SDK to the finder when it ends."""

    def __init__(self, finder: Finder) -> None:
        self._finder = finder

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._finder.look("span", *(span.to_json() for span in spans))
        return SpanExportResult.SUCCESS


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """Where the store is: a file, or the URL of a database of its own."""
    if request.param == "sqlite":
        return tmp_path / "store.db"
    url: str = request.getfixturevalue("postgres").new_database()
    return url


async def test_no_token_is_found_after_two_thousand_calls(
    tmp_path: Path, place: Path | str, server: AuthorizationServer, finder: Finder, record_figures: RecordFigures
) -> None:
    await play(tmp_path, place, server, finder, record_figures, calls=2_000)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
async def test_no_token_is_found_after_a_hundred_thousand_calls(
    tmp_path: Path,
    place: Path | str,
    server: AuthorizationServer,
    finder: Finder,
    record_figures: RecordFigures,
    seed: int,
) -> None:
    """Four runs of twenty-five thousand on each store, so that they can be played side by side."""
    await play(tmp_path, place, server, finder, record_figures, calls=25_000, seed=seed)


async def play(
    folder: Path,
    place: Path | str,
    server: AuthorizationServer,
    finder: Finder,
    record_figures: RecordFigures,
    *,
    calls: int,
    seed: int = 19,
) -> None:
    chance = random.Random(seed)
    tools = Tools(folder / "project")
    tools.write(TOOLS)
    store = SqliteStore(place) if isinstance(place, Path) else PostgresStore(place)
    spans, numbers = TracerProvider(), InMemoryMetricReader()
    spans.add_span_processor(SimpleSpanProcessor(SpansFor(finder)))
    tracing = Tracing(spans, MeterProvider([numbers]), owned=(spans,))
    made = connections(server, store)
    made.page = "/#/connections/"
    many = 10_000_000
    policy = {
        "text": {"total_calls": many, "retrieval_calls": many, "turn_ms": many},
        "identical_calls": many, "refusals": many, "empty_results": many,
    }  # fmt: skip
    outcomes: Counter[str] = Counter()
    options = {"connections": made, "audit": folder / "audit", "policy": policy, "tracing": tracing}
    async with Runtime(tools.build(), store=store, **options) as runtime:
        sessions = {person: await runtime.open_session(user=person) for person in PEOPLE}
        listeners = [asyncio.create_task(_listen(session, finder)) for session in sessions.values()]

        async def turn(person: str, done: int) -> None:
            wishes = [
                Call(chance.choice(("reads", "writes")), {"q": f"{chance.choice(WAYS)} {n} {person}"}, f"c{n}")
                for n in range(done, done + _TURN_CALLS)
            ]
            if chance.random() < 0.1:
                await _through_a_model(runtime, sessions[person], wishes, finder, f"m{done}")
                return
            await sessions[person].begin_turn(f"m{done}")
            for answer in await sessions[person].call_many(wishes):
                finder.look("envelope", answer.to_dict())
                outcomes["ok" if answer.error is None else answer.error.type.value] += 1
            await sessions[person].end_turn()

        for begun in range(0, calls, _TURN_CALLS * len(PEOPLE)):
            # Everybody at once, and each may connect or disconnect while their calls run.
            await asyncio.gather(
                *(_change(made, server, person, chance) for person in PEOPLE),
                *(turn(person, begun + number * _TURN_CALLS) for number, person in enumerate(PEOPLE)),
            )
            finder.compare()
        finder.look("metrics", runtime.metrics.to_json(), runtime.metrics.to_prometheus())
        data = numbers.get_metrics_data()
        assert data is not None
        finder.look("metrics", data.to_json())
        for listener in listeners:
            listener.cancel()
        await asyncio.gather(*listeners, return_exceptions=True)
    for path in folder.rglob("*"):
        if path.is_file() and "project" not in path.relative_to(folder).parts:
            finder.look("file", path.read_bytes().decode("latin-1"))
    if isinstance(place, str):
        _look_at_rows(place, finder)
    record_figures(
        f"{calls} calls, {finder.handed_out} tokens handed out, {len(server.tokens)} made: {dict(outcomes)}; looked at "
        f"{dict(finder.seen)}; {len(finder.found)} found, {len(finder.mixed_up)} mixed up"
    )
    assert finder.mixed_up == []
    assert finder.found == []
    assert finder.handed_out > calls // 4
    assert outcomes["ok"] > calls // 5, outcomes
    assert min(outcomes["AUTH"], outcomes["INTERNAL"], outcomes["TRANSIENT"]) > calls // 50, outcomes
    kinds = (
        "log",
        "event",
        "envelope",
        "prompt",
        "metrics",
        "file",
        "span",
        *(["row"] if isinstance(place, str) else []),
    )
    assert min(finder.seen[kind] for kind in kinds) > 0, finder.seen
    assert finder.seen["span"] > calls, "one for each call, and for the turns"
    assert sum(token.revoked for token in server.tokens) > 3, "some were refreshed or revoked on the way"


def _look_at_rows(url: str, finder: Finder) -> None:
    """Every row of every table, bytes as the letters that they are."""
    with psycopg.connect(url) as db:
        tables = db.execute(
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        ).fetchall()
        for names in tables:
            for row in db.execute(psycopg.sql.SQL("SELECT * FROM {}").format(psycopg.sql.Identifier(*names))):
                finder.look("row", repr(row))


async def _listen(session: Session, finder: Finder) -> None:
    async for event in session.events():
        finder.look("event", dict(event.data), repr(event))


async def _through_a_model(
    runtime: Runtime, session: Session, wishes: list[Call], finder: Finder, message: str
) -> None:
    model = PlayedModel([wishes, ["Done."]])
    agent = TextAgent(runtime, model)
    conversation = Conversation()
    async for event in agent.run(session, conversation, "Look at my calendar.", message_id=message):
        finder.look("agent", dict(event.data))
    finder.look("prompt", *(repr(request) for request in model.requests))


async def _change(made: Connections, server: AuthorizationServer, person: str, chance: random.Random) -> None:
    """Now and then somebody connects, with a token that ends at once or later, or disconnects."""
    what = chance.random()
    if what < 0.15:
        begun = await made.begin("", person, "example", redirect_uri=BACK, browser="b")
        server.life, server.account = chance.choice((30, 3600, 3600)), person
        await made.complete(consent(begun.url), redirect_uri=BACK, browser="b")
    elif what < 0.2:
        await made.disconnect("", person, "example")
