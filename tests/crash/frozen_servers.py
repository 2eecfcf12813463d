"""Three real servers on one store that are frozen (SIGSTOP), cut off from the database and killed, under text clients.

A frozen server does nothing and knows nothing of it; one that is cut off cannot ask, or asks and hears nothing. Meanwhile others
take its sessions over, and then it is there again, with what it had in memory. Beside what the rolling restarts are judged by, no
server may show less than a client has heard before: a message that was answered is answered, in the same words, wherever and
whenever somebody looks after that. By hand:

    python -m tests.crash.frozen_servers --seconds 300 --seed 7 [--sqlite]
"""

import argparse
import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import httpx2 as httpx
from tests.crash.proxy import NetworkProxy
from tests.crash.rolling_restarts import Message, Page, RollingFigures, RollingRestarts
from tests.crash.run import room
from tests.crash.two_servers import Client, Wanted, _free_port
from tests.postgres_server import PostgresServer, postgres_server
from tests.server.kit import StreamedEvent

Trouble = Literal["freeze", "silence", "cut", "delay", "kill"]
SERVERS = 3
LONGEST = 12.0
"""Seconds that a server is frozen or cut off."""
SILENT_SECONDS = 3.0
"""A client that has heard nothing for so long goes elsewhere; streams say every second that they live."""
_TAKEN_AFTER: dict[Trouble, float] = {"freeze": 7.0, "silence": 7.0, "cut": 1.0, "delay": 2.0}
"""Seconds after which others may take a server's turns over: its heart has not beaten since some time before the trouble."""
_BACK_SECONDS = 2.0
"""After a trouble, until the server's heart beats again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What is done to a server, `at` seconds after the beginning and for so long."""

    at: float
    place: int
    trouble: Trouble
    seconds: float = 0.0


@dataclass(slots=True)
class FrozenFigures(RollingFigures):
    troubles: Counter[str] = field(default_factory=Counter)
    takeovers: int = 0
    """Turns that were begun by two servers, because the first was taken for dead."""
    refused: int = 0
    """Writes that a server refused because it could not reach the store."""
    stale: list[str] = field(default_factory=list)

    @property
    def faults(self) -> dict[str, list[str]]:
        found = super(FrozenFigures, self).faults  # slots make another class of this one
        return {name: said for name, said in found.items() if name != "unknown"}  # a frozen call may become unknown

    def __str__(self) -> str:
        return (
            f"{super(FrozenFigures, self).__str__()}; troubles {dict(self.troubles)}, {self.takeovers} turns taken over, "
            f"{self.refused} writes refused, {self.looks} looks, {len(self.stale)} stale"
        )


class FrozenServers(RollingRestarts):
    """One run in one folder. `server` is the PostgreSQL that they share; None: a file."""

    figures: FrozenFigures

    def __init__(
        self,
        folder: Path,
        *,
        steps: list[Step] | None = None,
        server: PostgresServer | None = None,
        looks: bool = True,
        waits: bool = True,
        **more: Any,
    ) -> None:
        database = server.new_database() if server is not None else None
        super().__init__(folder, every=0, database=database, **more)
        self.figures = FrozenFigures(seed=self.figures.seed, clients=self.figures.clients)
        self.steps = steps
        self.server = server
        self.ports = [_free_port() for _ in range(SERVERS)]
        self.live = [None] * SERVERS
        self.networks: list[NetworkProxy] = []
        self.known: dict[str, dict[str, str]] = {}
        """By session: the messages that somebody has heard to be done, and in which words."""
        if not (looks and waits):
            self.patience = 5.0  # a control has nothing to lose
        self._marking: list[asyncio.Task[None]] = []
        self._options = {"heartbeat_seconds": 1, "looks": looks, "waits": waits}

    async def run(self) -> FrozenFigures:
        with ExitStack() as stack:
            if self.server is not None and self.database is not None:
                self.networks = [NetworkProxy(self.database, self.server.folder) for _ in self.ports]
                for network in self.networks:
                    stack.callback(network.close)
            await super().run()
        return self.figures

    def _database_of(self, place: int) -> str | None:
        return self.networks[place].url if self.networks else None

    def _new_http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(timeout=SILENT_SECONDS, limits=httpx.Limits(max_connections=None))

    # The disorder

    async def _disturb(self, until: float) -> None:
        until = time.monotonic() + self.seconds  # the servers have started, which takes its time
        self._listening = []
        async with asyncio.TaskGroup() as group:
            for number in range(self.figures.clients):
                group.create_task(self._talk(f"c{number}", until))
            for _ in range(3):
                group.create_task(self._look(until))
            if self.steps is not None:
                began = time.monotonic()
                for step in self.steps:
                    group.create_task(self._take(step, began))
            else:
                group.create_task(self._trouble(until))

    def _goes_on(self, until: float) -> bool:
        return time.monotonic() < until

    async def _trouble(self, until: float) -> None:
        """At random, never to all servers at once, but for a moment now and then."""
        kinds: tuple[Trouble, ...] = ("freeze", "freeze", "silence", "cut", "cut", "delay", "kill")
        kinds = kinds if self.networks else ("freeze", "freeze", "kill")
        while self._goes_on(until):
            began = time.monotonic()
            places = self.random.sample(range(SERVERS), self.random.choice((1, 1, 2, 2, SERVERS)))
            longest = LONGEST if len(places) < SERVERS else 2.0
            steps = [
                Step(
                    at=self.random.uniform(0, 3), place=place, trouble=self.random.choice(kinds),
                    seconds=self.random.choice((self.random.uniform(0.1, 3), self.random.uniform(0, longest))),
                )
                for place in places
            ]  # fmt: skip
            await asyncio.gather(*(self._take(step, began) for step in steps))
            await asyncio.sleep(self.random.uniform(0, 2))

    async def _take(self, step: Step, began: float) -> None:
        await asyncio.sleep(began + step.at - time.monotonic())
        process = self.live[step.place]
        assert process is not None
        assert process.pid is not None
        self.figures.troubles[step.trouble] += 1
        if os.environ.get("DEBUG_STEPS"):
            print(f"{time.monotonic():.3f} {step}")
        if step.trouble == "kill":
            self.journal.write("killing", worker=int(process.name))
            process.kill()
            await asyncio.to_thread(process.join)
            self.figures.kills += 1
            await self._start(step.place)
        elif step.trouble == "freeze":
            os.kill(process.pid, signal.SIGSTOP)
            try:
                await self._pass(step, process.name)
            finally:
                os.kill(process.pid, signal.SIGCONT)
        else:
            network = self.networks[step.place]
            network.swallows, network.refuses = step.trouble == "silence", step.trouble == "cut"
            network.delay = 0.2 if step.trouble == "delay" else 0.0
            if step.trouble == "cut":
                network.cut()
            try:
                await self._pass(step, process.name)
            finally:
                network.swallows, network.refuses, network.delay = False, False, 0.0

    async def _pass(self, step: Step, name: str) -> None:
        """The time of a trouble. From some moment on the server's turns may be taken over, and count as cut off."""
        first = _TAKEN_AFTER.get(step.trouble, LONGEST)
        if step.seconds > first:
            self._marking.append(asyncio.create_task(self._mark(name, first, step.seconds + _BACK_SECONDS)))
        await asyncio.sleep(step.seconds)

    async def _mark(self, name: str, first: float, last: float) -> None:
        await asyncio.sleep(first)
        while first < last:
            self.journal.write("killing", worker=int(name))
            await asyncio.sleep(0.2)
            first += 0.2

    # What clients see

    async def _look(self, until: float) -> None:
        while self._goes_on(until):
            if self.clients:
                self.figures.looks += 1
                with suppress(TimeoutError):
                    async with asyncio.timeout(SILENT_SECONDS):
                        await self._show(self.random.choice(self.clients))
            await asyncio.sleep(self.random.uniform(0, 0.1))

    async def _find_requests(self, page: Page) -> None:
        """What a page does that has missed something: it looks what waits for the person, too."""
        answer = await self._ask("GET", f"/api/sessions/{page.id}?tokens=true", headers=page.headers)
        if answer is not None and answer.status_code == 200:
            for request in answer.json()["confirmations"]:
                page.requests[request["args"]["account"]] = request

    async def _show(self, client: Client) -> list[dict[str, Any]]:
        """What any server shows has to hold what somebody had heard before it was asked."""
        while True:
            place, known = self.random.randrange(SERVERS), dict(self.known.get(client.id, {}))
            asked = time.monotonic()
            url = f"http://127.0.0.1:{self.ports[place]}/api/sessions/{client.id}"
            with suppress(httpx.HTTPError):
                answer = await self.http.get(url, headers=client.headers)
                if answer.status_code == 200:
                    shown: list[dict[str, Any]] = answer.json()["messages"]
                    self._compare(
                        client, known, shown, f"at {place}, {time.monotonic() - asked:.2f} s after it was asked"
                    )
                    return shown
            await asyncio.sleep(0.05)

    def _compare(self, client: Client, known: dict[str, str], shown: list[dict[str, Any]], where: str) -> None:
        answers = {one["messageId"]: one for one in shown if one["role"] == "assistant"}
        for message, text in known.items():
            found = answers.get(message)
            if found is None or found["state"] != "done":
                self.figures.stale.append(
                    f"{message} was done, and is {found and found['state']} {where} {time.monotonic():.3f}"
                )
            elif found["text"] != text:
                self.figures.stale.append(f"{message} was answered {text!r}, and now is {found['text']!r} {where}")
        for message, found in answers.items():
            if found["state"] == "done":
                self._know(client, message, found["text"])

    def _know(self, client: Client, message: str, text: str) -> None:
        self.known.setdefault(client.id, {}).setdefault(message, text)

    async def _hear(self, page: Page, event: StreamedEvent) -> None:
        await super()._hear(page, event)
        if event.type == "resync":
            await self._find_requests(page)
            page.told.set()
        if event.type == "done" and event.data is not None and event.data.get("state") == "done":
            self._know(page, event.data["messageId"], event.data["text"])

    async def _approve(self, page: Page, message: Message) -> None:
        try:
            await super()._approve(page, message)
        finally:
            if not message.approved:
                self.figures.strange.append(
                    f"{message.id} was not approved; its request is {page.requests.get(message.id)}"
                )

    # The verdict

    def _is_audited(self, lines: list[dict[str, Any]], starts: int) -> bool:
        """Of a server that was frozen another may have written the lines, and then it writes its own, too."""
        own = [line for line in lines if not line.get("recovered")]
        return bool(lines) and len(own) <= starts and len(lines) - len(own) <= starts

    def _find_stolen(self) -> None:
        super()._find_stolen()
        begun = Counter((line["session"], line["message"]) for line in self._lines("turn"))
        self.figures.takeovers = sum(count > 1 for count in begun.values())

    def _check_answer(self, wanted: Wanted, answer: dict[str, Any] | None, accounts: Counter[tuple[str, int]]) -> None:
        """A server that is cut off refuses writes in a sentence, and then nothing has happened."""
        cards = answer["toolCards"] if answer is not None else []
        refused = [card for card in cards if (card.get("error") or {}).get("type") == "STORE_UNAVAILABLE"]
        for card in refused:
            self.figures.refused += 1
            if card["error"]["partialSideEffects"] or accounts[card["args"]["account"], card["args"]["amount"]]:
                self.figures.lost.append(f"{wanted.id}: {card['toolId']} was refused, and ran")
        said = {(card["toolId"], card["args"]["amount"]) for card in refused}
        others = [(tool, args) for tool, args in wanted.calls if (tool, args["amount"]) not in said]
        super()._check_answer(replace(wanted, calls=others), answer, accounts)


def run(
    seed: int, seconds: float, *, clients: int, think: float, steps: list[Step] | None = None,
    server: PostgresServer | None = None, **control: bool,
) -> FrozenFigures:  # fmt: skip
    with room() as folder:
        servers = FrozenServers(
            Path(folder) / "run", clients=clients, think=think, seed=seed, seconds=seconds, kills=0, steps=steps, server=server,
            **control,
        )  # fmt: skip
        return asyncio.run(servers.run())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--think", type=float, default=1, help="seconds between two messages of a client, on average")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(31))
    parser.add_argument("--sqlite", action="store_true", help="on a file, where nobody can be cut off")
    parser.add_argument("--blind", action="store_true", help="a control: it must show what is stale")
    parser.add_argument("--hasty", action="store_true", help="a control: it must take back what it told")
    parser.add_argument("--no-guards", action="store_true", help="a control: it must double")
    chosen = parser.parse_args()
    control = (
        {"ledger": False, "steals": True}
        if chosen.no_guards
        else {"looks": not chosen.blind, "waits": not chosen.hasty}
    )
    more = {"clients": chosen.clients, "think": chosen.think, **control}
    with ExitStack() as stack:
        server = None if chosen.sqlite else stack.enter_context(postgres_server("fsync=off", "max_connections=300"))
        figures = run(chosen.seed, chosen.seconds, server=server, **more)
    figures.report()
    return 1 if figures.faults else 0


if __name__ == "__main__":
    sys.exit(main())
