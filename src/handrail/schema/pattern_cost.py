"""How much work it is to match a text with a pattern, in units of about 20 ns, estimated from the pattern alone.

The engine matches in linear time, but the factor depends on the pattern: it writes counted repetitions out as states, and
each character costs as many steps as states are active at once. Where a separator tells one repetition from the next, that
is a handful, however large the counts are; where repetitions overlap, as in `(a{1,20}){1,20}`, it is nearly all of them.
Which of the two it is, is found by following two attempts to match the same text side by side.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import NamedTuple

_MAX_REPEATS = 1_000_000
_MAX_POSITIONS = 300
_MAX_PAIRS = 20_000
_MAX_NESTED = 30
# An automaton of so few states is soon known to the engine as a whole, and from then on a character costs a nanosecond.
# One that is too large for its cache is worked out again and again, at a quarter of a microsecond per character.
_FEW_ACTIVE, _FEW_STATES = 4, 12
_CACHED_STATES, _UNCACHED_WORK = 1_000, 12
QUICK_CHARACTERS = 16
"""How many characters cost one unit when the pattern's automaton is known."""


class PatternCost(NamedTuple):
    """What the work of matching depends on."""

    size: int
    """About how many states the pattern has when its repetitions are written out."""
    active: int
    """How many of them a text can reach at once; 0 where the engine soon knows them all."""
    max_length: int | None
    """The number of characters after which no match is possible any more; None if there is none."""


def pattern_size(pattern: str) -> int:
    """About how many states a pattern has when its repetitions are written out."""
    return pattern_cost(pattern).size


def pattern_work(pattern: str, characters: int) -> int:
    """The highest cost of matching a text of that length."""
    _, active, max_length = pattern_cost(pattern)
    slow = characters if max_length is None else min(characters, max_length)
    return 1 + characters // QUICK_CHARACTERS + active * slow


@lru_cache(maxsize=20_000)
def pattern_cost(pattern: str) -> PatternCost:
    """The cost of a pattern; one that is not understood is taken for a bad one."""
    size = _written_out(pattern)
    try:
        tree = _PatternParser(pattern).parse()
    except _NotUnderstoodError:
        return PatternCost(size, size, None)
    anchored = pattern.startswith("^") and not isinstance(tree, _Choice)
    automaton = _Automaton(tree, anchored)
    states = automaton.states()
    active = states if automaton.is_large else min(states, automaton.max_active())
    if active <= _FEW_ACTIVE or states <= _FEW_STATES:
        active = 0 if states <= _CACHED_STATES else _UNCACHED_WORK
    return PatternCost(size, active, None if automaton.is_endless or not anchored else states)


_WIDE = (r"\w", r"\W", r"\D", r"\S", ".")
_TOKEN = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\{(\d+)(,(\d*))?\}|[()|*+?]|.", re.DOTALL)


def _written_out(pattern: str) -> int:
    sizes = [0]
    last = 0
    for token in _TOKEN.finditer(pattern):
        text = token[0]
        if text == "(":
            sizes.append(0)
            continue
        if text == ")" and len(sizes) > 1:
            last = sizes.pop() + 1
        elif text in ("*", "+", "?") or token[1] is not None:
            # An open repetition is written out as often as it must be matched, and once more.
            open_end = text in ("*", "+") or (token[2] is not None and not token[3])
            times = 1 if token[1] is None else int(token[3] or token[1]) + open_end
            more = max(last * (min(times, _MAX_REPEATS) - 1), 0)
            sizes[-1] += more
            last += more
            continue
        else:
            # A class of letters beyond ASCII is compiled to many byte ranges.
            wide = text in _WIDE or (text[:1] == "[" and (text[1:2] == "^" or not text.isascii()))
            last = 20 if wide else 1
        sizes[-1] += last
    return min(sum(sizes), _MAX_REPEATS)


# ------------------------------------------------------------------------------------------------------------ the syntax

_LETTERS, _DIGITS, _SPACES, _OTHERS = (1 << bit for bit in range(128, 132))
_BEYOND_ASCII = _LETTERS | _DIGITS | _SPACES | _OTHERS
_ANY = (1 << 132) - 1
"""A set of characters: a bit for each of ASCII, and one for each of four kinds of all others."""


def _mask(character: str) -> int:
    if character.isascii():
        return 1 << ord(character)
    return _SPACES if character.isspace() else _LETTERS | _DIGITS | _OTHERS


_ASCII = [chr(code) for code in range(128)]
_CLASSES = {
    "d": sum(_mask(one) for one in _ASCII if one.isdigit()) | _DIGITS,
    "w": sum(_mask(one) for one in _ASCII if one.isalnum() or one == "_") | _LETTERS | _DIGITS,
    "s": sum(_mask(one) for one in " \t\n\r\f\v") | _SPACES,
}
_CLASSES |= {name.upper(): _ANY & ~mask for name, mask in _CLASSES.items()}
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_ASSERTIONS = frozenset("bBAzZ")
_REPETITION = re.compile(r"[*+?]|\{(\d+)(,(\d*))?\}")
_GROUP = re.compile(r"\?(:|P?<\w+>)")
_NAMED = re.compile(r"\{[^}]*\}|[0-9A-Fa-f]+|\w")


class _NotUnderstoodError(Exception):
    """The pattern uses something that is not looked at here."""


@dataclass(slots=True)
class _CharacterSet:
    """One character, of those whose bits are set."""

    mask: int


@dataclass(slots=True)
class _Sequence:
    """One part after the other."""

    parts: list[_Node]


@dataclass(slots=True)
class _Choice:
    """Any one of the parts."""

    parts: list[_Node]


@dataclass(slots=True)
class _Repeat:
    """A part many times over; without a greatest number, any number of times."""

    part: _Node
    least: int
    greatest: int | None


_Node = _CharacterSet | _Sequence | _Choice | _Repeat


class _PatternParser:
    """Reads what patterns in schemas are made of; other syntax is not understood."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._nested = 0

    def parse(self) -> _Node:
        tree = self._choice()
        if self._at < len(self._text):
            raise _NotUnderstoodError
        return tree

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise _NotUnderstoodError
        self._at += 1
        return self._text[self._at - 1]

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _choice(self) -> _Node:
        parts = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else _Choice(parts)

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._atom()))
        return parts[0] if len(parts) == 1 else _Sequence(parts)

    def _repeated(self, part: _Node) -> _Node:
        while token := _REPETITION.match(self._text, self._at):
            self._at = token.end()
            if token[1] is None:
                least, greatest = {"*": (0, None), "+": (1, None), "?": (0, 1)}[token[0]]
            else:
                least = int(token[1])
                greatest = least if token[2] is None else int(token[3]) if token[3] else None
            if self._peek() == "?":  # lazy: other matches are preferred, the work is the same
                self._at += 1
            part = _Repeat(part, least, greatest)
        return part

    def _atom(self) -> _Node:
        one = self._next()
        if one == "(":
            return self._group()
        if one == "[":
            return _CharacterSet(self._class())
        if one == ".":
            return _CharacterSet(_ANY)
        if one in "^$":
            return _Sequence([])
        if one == "\\":
            if self._peek() in _ASSERTIONS:
                self._at += 1
                return _Sequence([])
            return _CharacterSet(self._escape())
        if one in "*+?{":
            raise _NotUnderstoodError
        return _CharacterSet(_mask(one))

    def _group(self) -> _Node:
        if self._peek() == "?" and not (named := _GROUP.match(self._text, self._at)):
            raise _NotUnderstoodError
        if self._peek() == "?" and named:
            self._at = named.end()
        self._nested += 1
        if self._nested > _MAX_NESTED:
            raise _NotUnderstoodError
        inner = self._choice()
        self._nested -= 1
        if self._next() != ")":
            raise _NotUnderstoodError
        return inner

    def _escape(self) -> int:
        name = self._next()
        if name in _CLASSES:
            return _CLASSES[name]
        if name in _CONTROLS:
            return _mask(_CONTROLS[name])
        if name in "pPxuU":  # which characters these are hardly matters
            named = _NAMED.match(self._text, self._at)
            self._at = named.end() if named else self._at
            return _ANY
        if name.isalnum():
            raise _NotUnderstoodError
        return _mask(name)

    def _class(self) -> int:
        negated = self._peek() == "^"
        if negated:
            self._at += 1
        mask, excluded, first = 0, 0, True
        while first or self._peek() != "]":
            first = False
            start = self._next()
            if start == "[" or (start in "&-~" and self._peek() == start):
                raise _NotUnderstoodError  # nested classes and set operations
            found = self._escape() if start == "\\" else _mask(start)
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                end = self._next()
                last = self._escape() if end == "\\" else _mask(end)
                found = _ANY if _ANY in (found, last) else _range(found, last)
            mask |= found
            # Of the others, a single letter is not all of its kind.
            excluded |= found if start == "\\" and found != _ANY else found & ~_BEYOND_ASCII
        self._at += 1
        return _ANY & ~excluded if negated else mask


def _range(first: int, last: int) -> int:
    low, high = first.bit_length() - 1, last.bit_length() - 1
    return sum(1 << bit for bit in range(low, min(high, 127) + 1)) | (_BEYOND_ASCII if high >= 128 else 0)


# --------------------------------------------------------------------------------------------------------- the automaton


class _Transition(NamedTuple):
    """The way from one position to the next. Of the counters that belong to the next position, the first `kept` stay as
    they are, but for `counted`, which goes up; the others begin anew."""

    target: int
    kept: int
    counted: int | None


@dataclass(slots=True)
class _Fragment:
    """What is known of a part of the tree: whether it matches nothing, and where it begins and ends."""

    empty: bool = True
    first: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)


class _Automaton:
    """The positions of a pattern, one for each class of characters in it, with a counter for each repetition around it."""

    def __init__(self, tree: _Node, anchored: bool) -> None:
        self.is_endless = False
        self.is_large = False
        self._masks: list[int] = []
        self._loops: list[tuple[int, ...]] = []
        self._counts: list[int] = []
        self._skippable: set[int] = set()
        self._steps: list[list[_Transition]] = []
        root = self._read(tree, ())
        self._start = [_Transition(target, 0, None) for target in root.first]
        if not anchored:
            # A match may begin anywhere: that is a position of its own, which is never left.
            self._masks.append(_ANY)
            self._loops.append(())
            self._steps.append([*self._start, _Transition(len(self._masks) - 1, 0, None)])
            self._start = self._steps[-1]

    def states(self) -> int:
        """How many states there are when all repetitions are written out."""
        return min(sum(self._weight(at, self._loops[at]) for at in range(len(self._masks))), _MAX_REPEATS)

    def _weight(self, position: int, loops: tuple[int, ...]) -> int:
        # A letter beyond ASCII has several bytes, each of which is a state.
        return (2 if self._masks[position] & _BEYOND_ASCII else 1) * prod(self._counts[loop] for loop in loops)

    def _read(self, node: _Node, loops: tuple[int, ...]) -> _Fragment:
        if isinstance(node, _CharacterSet):
            self._masks.append(node.mask)
            self._loops.append(loops)
            self._steps.append([])
            self.is_large = self.is_large or len(self._masks) > _MAX_POSITIONS
            return _Fragment(False, [len(self._masks) - 1], [len(self._masks) - 1])
        if isinstance(node, _Repeat):
            return self._read_repeat(node, loops)
        pieces = [self._read(part, loops) for part in node.parts]
        if isinstance(node, _Choice):
            first = [at for piece in pieces for at in piece.first]
            last = [at for piece in pieces for at in piece.last]
            return _Fragment(any(piece.empty for piece in pieces), first, last)
        whole = _Fragment()
        for piece in pieces:
            self._connect(whole.last, piece.first, len(loops), None)
            whole.first += piece.first if whole.empty else []
            whole.last = piece.last + (whole.last if piece.empty else [])
            whole.empty = whole.empty and piece.empty
        return whole

    def _read_repeat(self, node: _Repeat, loops: tuple[int, ...]) -> _Fragment:
        greatest = node.least + 1 if node.greatest is None else node.greatest
        if node.greatest == 0:
            return _Fragment()
        self.is_endless = self.is_endless or node.greatest is None
        counter = len(self._counts)
        counted = greatest > 1
        if counted:
            self._counts.append(min(greatest, _MAX_REPEATS))
        piece = self._read(node.part, (*loops, counter) if counted else loops)
        if counted and piece.empty:
            self._skippable.add(counter)
        if counted or node.greatest is None:
            depth = len(loops) + counted
            self._connect(piece.last, piece.first, depth, depth - 1 if counted else None)
        piece.empty = piece.empty or node.least == 0
        return piece

    def _connect(self, sources: list[int], targets: list[int], kept: int, counted: int | None) -> None:
        if self.is_large:
            return
        for source in sources:
            self._steps[source].extend(_Transition(target, kept, counted) for target in targets)

    def max_active(self) -> int:
        """How many states, repetitions written out, one text can reach at once."""
        pairs = self._pairs()
        if pairs is None:
            return _MAX_REPEATS
        ambiguous = [set(self._skippable) & set(loops) for loops in self._loops]
        beside: list[set[int]] = [{at} for at in range(len(self._masks))]
        for one, other, differ in pairs:
            beside[one].add(other)
            beside[other].add(one)
            if one == other:
                ambiguous[one].update(self._loops[one][i] for i, bit in enumerate(differ) if bit)
        weights = [self._weight(at, tuple(loops)) for at, loops in enumerate(ambiguous)]
        return max((sum(weights[at] for at in group) for group in beside), default=0)

    def _pairs(self) -> set[tuple[int, int, tuple[bool, ...]]] | None:
        """All pairs of positions that the same text leads to, with the counters in which they may differ; None if too many."""
        todo = list(self._next_pairs(self._start, self._start, None))
        found = set(todo)
        work = 0
        while todo:
            pair = todo.pop()
            for following in self._next_pairs(self._steps[pair[0]], self._steps[pair[1]], pair):
                work += 1
                if following not in found:
                    found.add(following)
                    todo.append(following)
            if work > _MAX_PAIRS:
                return None
        return found

    def _next_pairs(
        self, ones: list[_Transition], others: list[_Transition], before: tuple[int, int, tuple[bool, ...]] | None
    ) -> Iterator[tuple[int, int, tuple[bool, ...]]]:
        same = before is None or (before[0] == before[1] and not any(before[2]))
        differed = () if before is None else before[2]
        for number, one in enumerate(ones):
            # Two attempts that stand at the same place are one; to look at both orders of a pair would be work for nothing.
            for other in others[number:] if same else others:
                if not self._masks[one.target] & self._masks[other.target]:
                    continue
                differ = tuple(self._differ(i, one, other, differed) for i in range(self._common(one, other)))
                yield (one.target, other.target, differ)

    def _common(self, one: _Transition, other: _Transition) -> int:
        mine, others = self._loops[one.target], self._loops[other.target]
        return next(
            (i for i, pair in enumerate(zip(mine, others, strict=False)) if pair[0] != pair[1]),
            min(len(mine), len(others)),
        )

    @staticmethod
    def _differ(index: int, one: _Transition, other: _Transition, differed: tuple[bool, ...]) -> bool:
        if index >= one.kept and index >= other.kept:
            return False  # both begin to count here
        if index >= one.kept or index >= other.kept or (one.counted == index) != (other.counted == index):
            return True
        return index < len(differed) and differed[index]
