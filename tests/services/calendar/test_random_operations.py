"""Random operations on a real CalDAV server and on the embedded calendar: every answer is the same."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from tests.services.calendar.backends import NAMES, open_backend

from handrail.contract.errors import ToolError
from handrail_reference.services.calendar.port import Draft, EventChange

WEEK = datetime(2026, 1, 12, tzinfo=UTC)
PEOPLE = [f"{name}@example.com" for name in ("ana", "ivo", "eva")]
TITLES = ("Review", "Lunch, then; more", "ž “q” \\ x", "A very long title " * 9)


class Player:
    """Plays one list of operations on two calendars."""

    def __init__(self, seed, first, second):
        self.random = random.Random(seed)
        self.pair = (first, second)
        self.made = []
        self.count = 0
        self.compared = Counter()

    def moment(self):
        return WEEK + timedelta(minutes=15 * self.random.randrange(7 * 24 * 4))

    def text(self):
        return self.random.choice(TITLES)

    def people(self):
        return tuple(self.random.sample(PEOPLE, self.random.randrange(3)))

    async def both(self, ask):
        """The outcome of each, in the same words."""
        return [await outcome(ask(calendar, side)) for side, calendar in enumerate(self.pair)]

    async def step(self):
        self.count += 1
        kind = self.random.choices(
            ("create", "again", "update", "stale", "cancel", "look", "find", "clashes"), (6, 1, 4, 1, 2, 4, 1, 2)
        )[0]
        first, second = await getattr(self, kind)()
        assert first == second, f"step {self.count}, {kind}"
        self.compared[kind] += 1

    async def create(self):
        start = self.moment()
        draft = Draft(
            uid=f"{self.random.getrandbits(128):032x}",
            title=self.text(),
            start=start,
            end=start + timedelta(minutes=self.random.choice((15, 30, 60, 90, 24 * 60))),
            attendees=self.people(),
            description=self.random.choice(("", "Agenda\nOne; two")),
            location=self.random.choice(("", "Room, 1")),
            calendar=self.random.choice(NAMES),
        )
        ids = []

        async def ask(calendar):
            made = await calendar.create(draft)
            ids.append((made.event_id, made.etag))
            return seen(made)

        found = await self.both(lambda calendar, side: ask(calendar))
        self.made.append((draft, [one for one, _ in ids], [etag for _, etag in ids]))
        return found

    async def again(self):
        if not self.made:
            return 0, 0
        draft, _, _ = self.random.choice(self.made)
        return await self.both(lambda calendar, side: event(calendar.create(draft)))

    async def update(self, stale=False):
        if not self.made:
            return 0, 0
        place = self.random.randrange(len(self.made))
        draft, ids, etags = self.made[place]
        start = self.random.choice((None, self.moment()))
        change = EventChange(
            title=self.random.choice((None, self.text())),
            start=start,
            end=None if start is None else start + timedelta(minutes=self.random.choice((30, 45))),
            attendees=self.random.choice((None, self.people())),
            description=self.random.choice((None, "", "Changed")),
            location=self.random.choice((None, "", "Hall")),
        )
        key = f"k{self.count}"
        now = list(etags)

        async def ask(calendar, side):
            after = await calendar.update(ids[side], change, key=key, etag=etags[side] if stale else None)
            now[side] = after.etag
            return seen(after)

        found = await self.both(ask)
        if not stale:
            # From time to time the old version is kept, so that a stale one is tried later.
            self.made[place] = (draft, ids, now if self.random.random() < 0.7 else etags)
        return found

    async def stale(self):
        return await self.update(stale=True)

    async def cancel(self):
        if not self.made:
            return 0, 0
        _, ids, _ = self.random.choice(self.made)
        key = f"k{self.count}"
        return await self.both(lambda calendar, side: event(calendar.cancel(ids[side], key=key)))

    async def find(self):
        if not self.made:
            return 0, 0
        draft, _, _ = self.random.choice(self.made)
        return await self.both(lambda calendar, side: event(calendar.find(draft.uid)))

    async def clashes(self):
        start = self.moment()
        end = start + timedelta(hours=self.random.choice((1, 5)))
        return await self.both(lambda calendar, side: calendar.clashes(start=start, end=end, calendar="primary"))

    async def look(self):
        start = self.moment()
        end = start + timedelta(hours=self.random.choice((3, 24, 100)))
        names = self.random.choice((["primary"], ["team"], list(NAMES)))
        details = self.random.random() < 0.5

        async def ask(calendar):
            found = await calendar.availability(start=start, end=end, calendars=names, details=details, min_minutes=15)
            # Without details a server may join what overlaps: what is free and how much is busy stays the same.
            return found.free, found.busy_minutes, found.busy if details else ()

        return await self.both(lambda calendar, side: ask(calendar))


async def outcome(asked):
    try:
        return await asked
    except ToolError as error:
        return error.type


async def event(asked):
    return seen(await asked)


def seen(found):
    return found and (
        found.uid, found.calendar, found.title, found.start, found.end, found.attendees, found.description, found.location,
        found.sequence, found.cancelled, () if found.cancelled else found.conflicts,
    )  # fmt: skip


async def play(request, tmp_path, record_figures, seed, steps):
    with (
        open_backend("embedded", tmp_path, request) as first,
        open_backend("caldav", tmp_path, request) as second,
    ):
        player = Player(seed, first, second)
        for _ in range(steps):
            await player.step()
    record_figures(f"seed {seed}: the same answers to {dict(player.compared)}")


async def test_two_hundred_operations_have_the_same_answers(request, tmp_path, record_figures):
    await play(request, tmp_path, record_figures, seed=1, steps=200)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
async def test_ten_thousand_operations_have_the_same_answers(request, tmp_path, record_figures, seed):
    """Twenty calendars of five hundred operations each, so that a real server's time does not grow with what it holds."""
    await play(request, tmp_path, record_figures, seed=1_000 + seed, steps=500)
