"""Two real servers on one store, killed and started again at random, and clients that jump between them at random.

Some clients talk: each message asks for writing calls, and is sent again, to either server, until it is answered. Others only
look: GETs and streams of sessions that are not theirs to answer. In the end every message must have its answer, no call may
have run twice, and no server may have begun a turn while another that lived was at it. Once somebody has started after the last
of them was killed, every call that succeeded has its line in the audit log, no more than one for each time that it was started,
and the log is whole. By hand:

    python -m tests.crash.two_servers --seconds 60 --seed 7
"""

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import sys
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psycopg
from tests.crash.effects import Journal
from tests.crash.run import RunFigures, build_effects, room, warm_processes
from tests.crash.server import Post, serve
from tests.crash.worker import store_of
from tests.server.kit import OTHER, USER, bearer

from handrail import Registry, Runtime
from handrail.contract.store import LedgerState
from handrail.observe.verify import read_events

TALKERS, LOOKERS = 6, 3
MESSAGES = 100
"""Of one session."""
PATIENCE = 90.0
"""Seconds after which something that nobody disturbs any more is taken for stuck."""
_AGAIN = (409, 429, 503)


@dataclass(slots=True)
class Wanted:
    """A message of a client, and the calls that it asks for."""

    id: str
    calls: list[tuple[str, dict[str, Any]]]
    answered: bool = False

    @property
    def text(self) -> str:
        return "call " + " && ".join(f"{tool} {json.dumps(args)}" for tool, args in self.calls)


@dataclass(slots=True)
class Client:
    """Somebody with a session."""

    name: str
    key: str
    id: str = ""
    token: str = ""
    said: list[Wanted] = field(default_factory=list)

    @property
    def headers(self) -> dict[str, str]:
        return {**bearer(self.key), "X-Session-Token": self.token}


@dataclass(slots=True)
class Figures(RunFigures):
    stops: int = 0
    messages: int = 0
    sent: int = 0
    looks: int = 0
    turns: int = 0
    effects: int = 0
    unknown: int = 0
    audited: int = 0
    recovered: int = 0
    """Audit lines that another process wrote for one that was killed."""
    doubled: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    stolen: list[str] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)
    unaudited: list[str] = field(default_factory=list)
    unverified: list[str] = field(default_factory=list)

    @property
    def audit(self) -> str:
        return f"{self.audited} calls audited, {self.recovered} of them recovered, {len(self.unaudited)} without their line"

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.messages} messages sent {self.sent} times, {self.looks} looks, {self.kills} kills and "
            f"{self.stops} stops, {self.turns} turns begun, {self.effects} effects, {len(self.doubled)} doubled, "
            f"{len(self.lost)} lost, {self.unknown} unknown, {len(self.stolen)} stolen turns; {self.audit}, {self.seconds:.0f} s"
        )


class TwoServers:
    """One run in one folder."""

    def __init__(
        self,
        folder: Path,
        *,
        seed: int,
        seconds: float,
        ledger: bool = True,
        steals: bool = False,
        recovers: bool = True,
        kills: int = 1,
        database: str | None = None,
    ) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        self.seconds = seconds
        self.kills = kills
        """The least number: on a slow machine it takes longer until as much has happened."""
        self.ledger = ledger
        self.steals = steals
        self.recovers = recovers
        self.database = database
        self.figures = Figures(seed=seed)
        self.clients: list[Client] = []
        self.disturbed = True
        self.stop_share = 0.15
        """How many are asked to stop instead of being killed."""
        self.ports = [_free_port(), _free_port()]
        self.live: list[BaseProcess | None] = [None, None]
        self.numbers = 0
        self.urls = [f"http://127.0.0.1:{port}" for port in self.ports]
        self.patience = PATIENCE
        self._spawn = warm_processes()
        self._options: dict[str, Any] = {}
        """What else its post says to every server."""

    async def run(self) -> Figures:
        started = time.monotonic()
        build_effects(self.folder)
        self.journal = Journal(self.folder / "journal.jsonl")
        try:
            # All at once, on files that are not there yet.
            await asyncio.gather(*(self._start(place) for place in range(len(self.ports))))
            async with self._new_http() as self.http:
                await self._disturb(started + self.seconds)
                await self._finish()
                shown = [await self._show(client) for client in self.clients]
        finally:
            for process in self.live:
                if process is not None:
                    process.kill()
                    process.join()
        self.figures.seconds = time.monotonic() - started
        await self._find_unaudited()
        return self._judge(shown)

    def _new_http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(timeout=self.patience)

    # The disorder

    async def _disturb(self, until: float) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(TALKERS):
                group.create_task(self._talk(f"c{number}", until))
            for _ in range(LOOKERS):
                group.create_task(self._look(until))
            killing = group.create_task(self._kill(until))
            await killing

    def _goes_on(self, until: float) -> bool:
        return time.monotonic() < until or self.figures.kills < self.kills

    async def _kill(self, until: float) -> None:
        while self._goes_on(until):
            await asyncio.sleep(self.random.uniform(0.2, 1.2))
            place = self.random.randrange(2)
            process = self.live[place]
            assert process is not None
            stops = self.random.random() < self.stop_share
            self.journal.write("killing", worker=int(process.name))
            with suppress(ProcessLookupError):
                process.terminate() if stops else process.kill()
            await asyncio.to_thread(process.join)
            if process.exitcode not in (0, -signal.SIGKILL):
                self.figures.strange.append(f"server {process.name} ended with {process.exitcode}")
            self.figures.stops += stops
            self.figures.kills += not stops
            await asyncio.sleep(self.random.uniform(0.0, 0.4))
            await self._start(place)
        self.disturbed = False

    async def _start(self, place: int) -> None:
        self.numbers += 1
        guards = {"ledger": self.ledger, "steals": self.steals, "recovers": self.recovers}
        post = Post(self.numbers, self.folder, self.ports[place], database=self._database_of(place), **guards)
        process = self._spawn.Process(target=serve, args=(replace(post, **self._options),), name=str(post.number))
        process.start()
        self.live[place] = process
        async with asyncio.timeout(self.patience):
            while not await self._listens(place):
                if process.exitcode is not None:
                    raise AssertionError(f"a server did not start: {self._lines('failed')[-1:]}")
                await asyncio.sleep(0.02)

    def _database_of(self, place: int) -> str | None:
        """The URL by which this server reaches the database."""
        return self.database

    async def _listens(self, place: int) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.ports[place])
            writer.close()
            await writer.wait_closed()
        except OSError:
            return False
        return True

    async def _talk(self, name: str, until: float) -> None:
        """One session after the other: of each a server shows its newest 500 turns, and the verdict wants all of them."""
        number = 0
        while self._goes_on(until):
            client = Client(f"{name}.{number}", self.random.choice((USER, OTHER)))
            number += 1
            while not client.id:
                answer = await self._ask("POST", "/api/sessions", json={}, headers=bearer(client.key))
                if answer is not None and answer.status_code == 201:
                    client.id, client.token = answer.json()["sessionId"], answer.json()["token"]
            self.clients.append(client)
            while self._goes_on(until) and len(client.said) < MESSAGES:
                wanted = self._message(client)
                client.said.append(wanted)
                while not wanted.answered and self.disturbed:
                    await self._send(client, wanted)
                await asyncio.sleep(self.random.uniform(0.0, 0.1))

    def _message(self, client: Client) -> Wanted:
        name = f"{client.name}-{len(client.said)}"
        tools = [
            self.random.choice(("charge_card", "charge_card", "set_address")) for _ in range(self.random.randint(1, 3))
        ]
        return Wanted(name, [(tool, {"account": name, "amount": number}) for number, tool in enumerate(tools)])

    async def _send(self, client: Client, wanted: Wanted) -> None:
        """The message to either server; streamed, or taken and then looked for at either."""
        self.figures.sent += 1
        streamed = self.random.random() < 0.5
        headers = {**client.headers, **({"Accept": "text/event-stream"} if streamed else {})}
        path = f"/api/sessions/{client.id}"
        answer = await self._ask(
            "POST", f"{path}/messages", json={"id": wanted.id, "text": wanted.text}, headers=headers
        )
        if answer is None or answer.status_code in _AGAIN:
            await asyncio.sleep(0.02)
            return
        if answer.status_code not in (200, 202):
            self.figures.strange.append(f"{wanted.id}: {answer.status_code} {answer.text[:200]}")
            await asyncio.sleep(0.1)
            return
        if streamed:
            wanted.answered = b'"state":"done"' in answer.content
            return
        for _ in range(self.random.randint(1, 40)):
            shown = await self._ask("GET", path, headers=client.headers)
            if shown is not None and shown.status_code == 200:
                said = [one for one in shown.json()["messages"] if one["messageId"] == wanted.id]
                if not said:
                    self.figures.lost.append(f"{wanted.id} was taken and is not there")
                if any(one["role"] == "assistant" and one["state"] == "done" for one in said):
                    wanted.answered = True
                    return
                if any(one["state"] in ("failed", "cancelled") for one in said):
                    return  # it is sent again
            await asyncio.sleep(0.02)

    async def _look(self, until: float) -> None:
        """Somebody who only looks, anywhere, at any time."""
        while self._goes_on(until):
            if not self.clients:
                await asyncio.sleep(0.05)
                continue
            client = self.random.choice(self.clients[-2 * TALKERS :])
            self.figures.looks += 1
            path = f"/api/sessions/{client.id}"
            if self.random.random() < 0.8:
                await self._ask("GET", path, headers=client.headers)
            else:
                with suppress(httpx.HTTPError):
                    await self._listen(client, self.random.choice(self.urls) + path + "/events")
            await asyncio.sleep(self.random.uniform(0.0, 0.05))

    async def _listen(self, client: Client, url: str) -> None:
        """For half a second, or until nothing came for so long."""
        ends = time.monotonic() + 0.5
        headers = {**client.headers, "Last-Event-ID": "0"}
        async with self.http.stream(
            "GET", url, headers=headers, timeout=httpx.Timeout(self.patience, read=0.5)
        ) as stream:
            async for _ in stream.aiter_bytes():
                if time.monotonic() > ends:
                    return

    async def _ask(self, method: str, path: str, **more: Any) -> httpx.Response | None:
        """At either server; None if it died, or is not there."""
        try:
            return await self.http.request(method, self.random.choice(self.urls) + path, **more)
        except httpx.HTTPError:
            await asyncio.sleep(0.02)
            return None

    async def _finish(self) -> None:
        """Nobody is killed any more: what is open is sent again until it is answered."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.patience):
                for client in self.clients:
                    for wanted in client.said:
                        while not wanted.answered:
                            await self._send(client, wanted)

    async def _show(self, client: Client) -> list[dict[str, Any]]:
        async with asyncio.timeout(self.patience):
            while True:
                shown = await self._ask("GET", f"/api/sessions/{client.id}", headers=client.headers)
                if shown is not None and shown.status_code == 200:
                    return shown.json()["messages"]

    # The verdict

    def _lines(self, *kinds: str) -> list[dict[str, Any]]:
        text = (self.folder / "journal.jsonl").read_text("utf-8")
        return [line for line in map(json.loads, text.splitlines()) if line["kind"] in kinds]

    def _judge(self, shown: list[list[dict[str, Any]]]) -> Figures:
        figures = self.figures
        starts = self._lines("start")
        figures.effects = len(starts)
        figures.messages = sum(len(client.said) for client in self.clients)
        self._find_stolen()
        self._find_doubled(starts)
        accounts = Counter((line["account"], line["amount"]) for line in starts)
        for client, messages in zip(self.clients, shown, strict=True):
            said = [one["messageId"] for one in messages if one["role"] == "user"]
            wanted = [one.id for one in client.said]
            if said != wanted:
                figures.lost.append(f"{client.name} said {len(wanted)} messages; shown are {len(said)}")
            answers = {one["messageId"]: one for one in messages if one["role"] == "assistant"}
            for one in client.said:
                self._check_answer(one, answers.get(one.id), accounts)
        return figures

    def _check_answer(self, wanted: Wanted, answer: dict[str, Any] | None, accounts: Counter[tuple[str, int]]) -> None:
        figures = self.figures
        if answer is None or answer["state"] != "done":
            figures.lost.append(f"{wanted.id}: {answer and answer['state']}")
            return
        cards = {(card["toolId"], card["args"]["amount"]): card for card in answer["toolCards"]}
        for tool, args in wanted.calls:
            card = cards.get((tool, args["amount"]))
            ran = accounts[args["account"], args["amount"]]
            if card is None:
                figures.lost.append(f"{wanted.id}: {tool} has no outcome in {answer['text']!r}")
            elif card.get("ok"):
                if not ran:
                    figures.lost.append(f"{wanted.id}: {tool} is said to have run and did not")
            elif card["error"]["type"] == "CONFLICT" and card["error"].get("partialSideEffects"):
                figures.unknown += 1
                if wanted.id not in self._cut():
                    figures.strange.append(
                        f"{wanted.id}: {tool} is unknown, though no server was ended while it answered"
                    )
            else:
                figures.strange.append(f"{wanted.id}: {tool} was refused: {card['error']}")

    def _cut(self) -> set[str]:
        """The messages that a server was answering when it was killed, or asked to stop."""
        at: dict[int, set[str]] = defaultdict(set)
        cut: set[str] = set()
        for line in self._lines("turn", "turn_over", "killing"):
            if line["kind"] == "killing":
                cut |= at.pop(line["worker"], set())
            elif line["kind"] == "turn":
                at[line["worker"]].add(line["message"])
            else:
                at[line["worker"]].discard(line["message"])
        return cut

    def _find_doubled(self, starts: list[dict[str, Any]]) -> None:
        charges = [line for line in starts if line["tool"] in ("charge_card", "transfer")]
        for name, count in Counter((line["account"], line["amount"]) for line in charges).items():
            if count > 1:
                self.figures.doubled.append(f"{name} was charged {count} times")
        keys: dict[str, set[tuple[str, int]]] = defaultdict(set)
        for line in starts:
            keys[line["key"]].add((line["account"], line["amount"]))
        self.figures.doubled += [f"{key} stood for {len(calls)} calls" for key, calls in keys.items() if len(calls) > 1]

    def _find_stolen(self) -> None:
        """A turn that a server began while another, which nobody had begun to kill, had begun it and was not done with it."""
        at: dict[tuple[str, str], set[int]] = defaultdict(set)
        for line in self._lines("turn", "turn_over", "killing"):
            if line["kind"] == "killing":
                for workers in at.values():
                    workers.discard(line["worker"])
                continue
            place = (line["session"], line["message"])
            if line["kind"] == "turn_over":
                at[place].discard(line["worker"])
                continue
            self.figures.turns += 1
            others = at[place] - {line["worker"]}
            if others:
                self.figures.stolen.append(f"{line['message']} by server {line['worker']} from {sorted(others)}")
            at[place].add(line["worker"])

    def _is_audited(self, lines: list[dict[str, Any]], starts: int) -> bool:
        return 1 <= len(lines) <= starts

    async def _find_unaudited(self) -> None:
        """Whoever starts next writes the lines that the killed left out."""
        audit = self.folder / "audit"
        if self.database is not None:
            await asyncio.to_thread(_wait_until_alone, self.database)
        if self.recovers:
            registry = Registry.load(self.folder / "tool_registry.json")
            async with Runtime(registry, store=store_of(self.folder, self.database), audit=audit):
                pass
        store = store_of(self.folder, self.database)
        await store.open()
        rows = await store.ledger_rows(state=LedgerState.SUCCEEDED, limit=1_000_000)
        await store.close()
        lines: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for line in read_events(audit, event="execution"):
            lines[line.get("ledgerKey", "")].append(line)
        self.figures.audited = len(rows)
        self.figures.recovered = sum(line.get("recovered", False) for found in lines.values() for line in found)
        starts = Counter(line["key"] for line in self._lines("start"))
        for row in rows:
            # An idempotent call that was killed before its outcome was stored runs again: each execution may have a line.
            if not self._is_audited(lines[row.key], starts[row.key]):
                found = [(line["ok"], line["errorType"], line.get("recovered", False)) for line in lines[row.key]]
                self.figures.unaudited.append(
                    f"{row.tool} {row.args}, started {starts[row.key]} times, has the lines {found}"
                )
        url = {"HANDRAIL_STORE_URL": self.database} if self.database is not None else {}
        verified = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "handrail", "audit", "verify"),
            cwd=self.folder,
            env={name: value for name, value in os.environ.items() if not name.startswith("HANDRAIL_")} | url,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await verified.communicate()
        if verified.returncode != 0:
            self.figures.unverified = said.decode().splitlines()


def _wait_until_alone(database: str) -> None:
    """Until the server has noticed that the killed are gone: whose lock is held is not taken for dead."""
    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    until = time.monotonic() + PATIENCE
    with psycopg.connect(database, autocommit=True) as connection:
        while connection.execute(others).fetchone() != (0,) and time.monotonic() < until:
            time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def run(seed: int, seconds: float, *, kills: int = 1, database: str | None = None, **control: bool) -> Figures:
    with room() as folder:
        servers = TwoServers(
            Path(folder) / "run", seed=seed, seconds=seconds, kills=kills, database=database, **control
        )
        return asyncio.run(servers.run())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(31))
    parser.add_argument("--no-ledger", action="store_true", help="a control: it must double")
    parser.add_argument("--steals", action="store_true", help="a control: it must steal")
    parser.add_argument("--no-recovery", action="store_true", help="a control: audit lines must be missing")
    chosen = parser.parse_args()
    guards = {"ledger": not chosen.no_ledger, "steals": chosen.steals, "recovers": not chosen.no_recovery}
    figures = run(chosen.seed, chosen.seconds, **guards)
    figures.report()
    return 1 if figures.faults else 0


if __name__ == "__main__":
    sys.exit(main())
