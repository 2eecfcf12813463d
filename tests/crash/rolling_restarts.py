"""Two real servers on one PostgreSQL behind a balancer that knows nothing, stopped in order and started again in turn, under
text clients.

Each client has a page's habits: it holds a stream of its session's events and takes it up where it ended, sends a message
again when it hears nothing, sometimes too early, and approves what is held. Each request goes to whichever server is next. In
the end every message must have its answer, every stream must have told each answer once and whole, each call and each approval
must have had its effect once, no server may have begun a turn while another was at it, and no outcome may be unknown: a stop in
order cuts nothing off. By hand:

    python -m tests.crash.rolling_restarts --clients 500 --every 20 --seconds 120
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any

import httpx2 as httpx
from tests.crash.run import room
from tests.crash.two_servers import Client, Figures, TwoServers, Wanted
from tests.loopback_proxy import RoundRobinProxy
from tests.postgres_server import postgres_server
from tests.server.kit import OTHER, USER, Listening, StreamedEvent, bearer

_AGAIN = (409, 429, 502, 503)


@dataclass(slots=True)
class Message(Wanted):
    """What a client says. One with a transfer is held, and approved by its client."""

    transfer: dict[str, Any] | None = None
    words: int = 0
    """How long the answer continues after the calls."""
    approved: bool = False
    seconds: float = 0.0

    @property
    def text(self) -> str:
        calls = [*self.calls, *([("transfer", self.transfer)] if self.transfer is not None else [])]
        asked = "call " + " && ".join(f"{tool} {json.dumps(args)}" for tool, args in calls)
        return asked + (f" then slow {self.words} words" if self.words else "")


@dataclass(slots=True)
class Page(Client):
    """A client, and what its stream has told it."""

    at: int = 0
    """The number of the last event that was heard."""
    heard: Counter[str] = field(default_factory=Counter)
    requests: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By the account that is asked about."""
    told: asyncio.Event = field(default_factory=asyncio.Event)
    turn: str = ""
    pieces: list[str] = field(default_factory=list)


@dataclass(slots=True)
class RollingFigures(Figures):
    clients: int = 0
    approvals: int = 0
    streams: int = 0
    resyncs: int = 0
    again: Counter[str] = field(default_factory=Counter)
    """Why requests were made again."""
    shares: tuple[int, ...] = ()
    """How many requests each server was given."""
    answer_seconds: list[float] = field(default_factory=list, repr=False)
    stop_seconds: list[float] = field(default_factory=list, repr=False)
    untold: list[str] = field(default_factory=list)

    @property
    def faults(self) -> dict[str, list[str]]:
        found = super(RollingFigures, self).faults  # slots make another class of this one
        unknown = {"unknown": [f"{self.unknown} calls"]} if self.unknown else {}
        return {name: found[name] for name in found if name not in ("answer_seconds", "stop_seconds")} | unknown

    def __str__(self) -> str:
        cuts = quantiles(self.answer_seconds, n=100, method="inclusive") if len(self.answer_seconds) > 1 else [0.0] * 99
        return (
            f"seed {self.seed}: {self.clients} clients, {self.messages} messages sent {self.sent} times, "
            f"{self.approvals} approvals, {self.streams} streams ({self.resyncs} asked to look anew), "
            f"{self.stops} restarts (at most {max(self.stop_seconds, default=0):.1f} s to stop), {self.turns} turns begun, "
            f"{self.effects} effects; answered after {cuts[49]:.2f} s (median), {cuts[98]:.2f} s (p99), "
            f"{max(self.answer_seconds, default=0):.1f} s (longest); requests per server {self.shares}, made again "
            f"{dict(self.again)}; {len(self.doubled)} doubled, {len(self.lost)} lost, {len(self.untold)} not told, "
            f"{self.unknown} unknown, {len(self.stolen)} stolen turns; {self.audit}, {self.seconds:.0f} s"
        )


class RollingRestarts(TwoServers):
    """One run in one folder."""

    figures: RollingFigures

    def __init__(
        self, folder: Path, *, clients: int, every: float, think: float, seed: int, seconds: float, **more: Any
    ) -> None:
        super().__init__(folder, seed=seed, seconds=seconds, **more)
        self.figures = RollingFigures(seed=seed, clients=clients)
        self.every = every
        self.think = think
        self.clients: list[Page] = []  # type: ignore[assignment]

    async def run(self) -> RollingFigures:
        with RoundRobinProxy(self.ports) as proxy:
            assert isinstance(proxy, RoundRobinProxy)
            self.urls = [proxy.url]
            await super().run()
            self.figures.shares = tuple(proxy.requests.values())
        return self.figures

    def _new_http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(timeout=self.patience, limits=httpx.Limits(max_connections=None))

    # The disorder

    async def _disturb(self, until: float) -> None:
        self._listening: list[asyncio.Task[None]] = []
        async with asyncio.TaskGroup() as group:
            group.create_task(self._restart(until))
            for number in range(self.figures.clients):
                group.create_task(self._talk(f"c{number}", until))

    async def _restart(self, until: float) -> None:
        place = 0
        while self._goes_on(until):
            await asyncio.sleep(self.every)
            process = self.live[place]
            assert process is not None
            began = time.monotonic()
            process.terminate()
            await asyncio.to_thread(process.join)
            self.figures.stop_seconds.append(time.monotonic() - began)
            # Only now: a turn that another begins while this one still drains it is stolen.
            self.journal.write("killing", worker=int(process.name))
            if process.exitcode != 0:
                self.figures.strange.append(f"server {process.name} ended with {process.exitcode}")
            self.figures.stops += 1
            await self._start(place)
            place = 1 - place

    def _goes_on(self, until: float) -> bool:
        return time.monotonic() < until or self.figures.stops < self.kills

    async def _talk(self, name: str, until: float) -> None:
        await asyncio.sleep(self.random.uniform(0, self.think))  # they do not come all at once
        page = Page(name, self.random.choice((USER, OTHER)))
        while not page.id:
            answer = await self._ask("POST", "/api/sessions", json={}, headers=bearer(page.key))
            if answer is not None and answer.status_code == 201:
                page.id, page.token = answer.json()["sessionId"], answer.json()["token"]
        self.clients.append(page)
        self._listening.append(asyncio.create_task(self._listen_on(page)))
        while self._goes_on(until):
            message = self._message(page)
            page.said.append(message)
            began = time.monotonic()
            with suppress(TimeoutError):  # what is missing then is lost, as the verdict says
                async with asyncio.timeout(self.patience):
                    while not message.answered:
                        await self._send(page, message)
                    message.seconds = time.monotonic() - began
                    if message.transfer is not None:
                        await self._approve(page, message)
            await asyncio.sleep(self.random.uniform(0, 2 * self.think))

    def _message(self, client: Client) -> Message:
        name = f"{client.name}-{len(client.said)}"
        if self.random.random() < 0.2:
            return Message(name, [], transfer={"account": name, "amount": 0})
        tools = [
            self.random.choice(("charge_card", "charge_card", "set_address")) for _ in range(self.random.randint(1, 2))
        ]
        calls = [(tool, {"account": name, "amount": number}) for number, tool in enumerate(tools)]
        return Message(name, calls, words=self.random.choice((0, 20, 60)))

    async def _send(self, client: Client, wanted: Wanted) -> None:
        """To whoever is next: its stream is read, or the session's own stream is waited for; sometimes both, at two servers."""
        assert isinstance(client, Page)
        way = self.random.choice(("streamed", "heard", "impatient"))
        if way == "impatient":
            await asyncio.gather(self._post(client, wanted, "heard"), self._post(client, wanted, "streamed"))
        else:
            await self._post(client, wanted, way)

    async def _post(self, page: Page, wanted: Wanted, way: str) -> None:
        self.figures.sent += 1
        headers = {**page.headers, **({"Accept": "text/event-stream"} if way == "streamed" else {})}
        path = f"/api/sessions/{page.id}/messages"
        answer = await self._ask("POST", path, json={"id": wanted.id, "text": wanted.text}, headers=headers)
        if answer is None or answer.status_code in _AGAIN:
            self.figures.again["no answer" if answer is None else str(answer.status_code)] += 1
            await asyncio.sleep(self.random.uniform(0.1, 0.5))
        elif answer.status_code not in (200, 202):
            self.figures.strange.append(f"{wanted.id}: {answer.status_code} {answer.text[:200]}")
            await asyncio.sleep(0.5)
        elif way == "streamed":
            wanted.answered = wanted.answered or b'"state":"done"' in answer.content
            if not wanted.answered:
                self.figures.again["cut stream"] += 1
        else:
            with suppress(TimeoutError):
                async with asyncio.timeout(5):
                    while not wanted.answered and not page.heard[wanted.id]:
                        page.told.clear()
                        await page.told.wait()
                    wanted.answered = True
                    return
            self.figures.again["heard nothing"] += 1

    async def _approve(self, page: Page, message: Message) -> None:
        """With the token that the stream brought, at whoever is next, until it is said to be done."""
        while not message.approved:
            request = page.requests.get(message.id)
            if request is None:
                page.told.clear()
                await page.told.wait()
                continue
            path = f"/api/confirmations/{request['id']}/approve"
            answer = await self._ask("POST", path, json={"token": request["token"]}, headers=page.headers)
            if answer is not None and answer.status_code == 200:
                message.approved = bool(answer.json()["ok"])
                if not message.approved:
                    error = answer.json()["error"]
                    self.figures.again[f"approval {error['type']}"] += 1
                    # One that is approved and could not be recorded yet is carried out later, and then has its outcome.
                    if not error["retryable"] and error["type"] != "STORE_UNAVAILABLE":
                        self.figures.strange.append(f"{message.id}: {error}")
                        return
                    await asyncio.sleep(0.2)
            else:
                status = None if answer is None else answer.status_code
                self.figures.again[f"approval {status}"] += 1
                if status is not None and status not in _AGAIN:
                    self.figures.strange.append(f"{message.id}: approval {status} {answer and answer.text[:200]}")
                    return
                await asyncio.sleep(self.random.uniform(0.1, 0.5))

    # What a page hears

    async def _listen_on(self, page: Page) -> None:
        """Its stream, taken up where it ended, at whoever is next."""
        while True:
            self.figures.streams += 1
            headers = {**page.headers, "Last-Event-ID": str(page.at)}
            url = f"{self.urls[0]}/api/sessions/{page.id}/events"
            try:
                async with self.http.stream("GET", url, headers=headers) as answer:
                    if answer.status_code == 200:
                        listening = Listening(answer)
                        while (event := await listening.next()) is not None and event.type != "reconnect":
                            await self._hear(page, event)
                    elif answer.status_code not in _AGAIN:
                        self.figures.strange.append(f"{page.name}: the stream is refused with {answer.status_code}")
            except httpx.HTTPError:
                pass
            await asyncio.sleep(self.random.uniform(0.1, 0.5))

    async def _hear(self, page: Page, event: StreamedEvent) -> None:
        data = event.data or {}
        if event.type == "resync":
            self.figures.resyncs += 1
            shown = await self._show(page)
            page.heard = Counter()
            for one in shown:
                if one["role"] == "assistant" and one["state"] == "done":
                    page.heard[one["messageId"]] = 0
            page.turn = ""
        elif event.type == "closed":
            self.figures.strange.append(f"{page.name}: the stream says that the session has ended")
        elif event.type == "turn":
            page.turn, page.pieces = data["messageId"], []
        elif event.type == "text":
            page.pieces.append(data["text"])
        elif event.type == "confirmation":
            page.requests[data["args"]["account"]] = data
        elif event.type == "done":
            name, text = data["messageId"], "".join(page.pieces)
            page.heard[name] += 1
            if page.heard[name] > 1:
                self.figures.doubled.append(f"{name} was told to be done {page.heard[name]} times")
            if page.turn == name and text != data["text"]:
                self.figures.untold.append(f"{name}: told {text!r} of {data['text']!r}")
        if event.id is not None:
            page.at = event.id
        page.told.set()

    async def _finish(self) -> None:
        """Nobody is stopped any more: the streams may tell what is still to be told."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.patience):
                for page in self.clients:
                    while any(message.id not in page.heard for message in page.said if message.answered):
                        page.told.clear()
                        await page.told.wait()
        for listening in self._listening:
            listening.cancel()
        await asyncio.gather(*self._listening, return_exceptions=True)

    # The verdict

    def _judge(self, shown: list[list[dict[str, Any]]]) -> Figures:
        figures = self.figures
        for page in self.clients:
            figures.untold += [one.id for one in page.said if one.answered and one.id not in page.heard]
            figures.answer_seconds += [one.seconds for one in page.said if isinstance(one, Message) and one.answered]
        transfers = Counter(line["account"] for line in self._lines("start") if line["tool"] == "transfer")
        wanted = [one for page in self.clients for one in page.said if isinstance(one, Message) and one.transfer]
        figures.approvals = sum(one.approved for one in wanted)
        figures.lost += [f"{one.id} was not approved" for one in wanted if not one.approved]
        figures.lost += [
            f"{one.id} was approved and did not run" for one in wanted if one.approved and not transfers[one.id]
        ]
        # What the model said about an approved call is a turn of its own, which the clients did not ask for.
        asked = [[one for one in messages if not one["messageId"].startswith("~late:")] for messages in shown]
        return super()._judge(asked)


def run(
    seed: int,
    seconds: float,
    *,
    clients: int,
    every: float,
    think: float,
    restarts: int,
    database: str,
    **control: bool,
) -> RollingFigures:
    """The least number of restarts, however slow the machine is."""
    with room() as folder:
        servers = RollingRestarts(
            Path(folder) / "run", clients=clients, every=every, think=think, seed=seed, seconds=seconds, kills=restarts,
            database=database, **control,
        )  # fmt: skip
        return asyncio.run(servers.run())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--every", type=float, default=20, help="seconds between two restarts")
    parser.add_argument("--think", type=float, default=20, help="seconds between two messages of a client, on average")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(31))
    parser.add_argument("--no-guards", action="store_true", help="a control: it must double")
    chosen = parser.parse_args()
    control = {"ledger": False, "steals": True} if chosen.no_guards else {}
    with postgres_server() as server:
        figures = run(
            chosen.seed, chosen.seconds, clients=chosen.clients, every=chosen.every, think=chosen.think, restarts=2,
            database=server.new_database(), **control,
        )  # fmt: skip
    figures.report()
    return 1 if figures.faults else 0


if __name__ == "__main__":
    sys.exit(main())
