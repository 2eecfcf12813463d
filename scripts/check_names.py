"""Keep names plain: fail, in sentences, for a name that stands for two things and for words that only their author can place.

Part of `make lint`. A class name occurs once in both packages, so that a search finds one thing; a leading underscore does not
make it another name. The lists of words grow when a review meets another; `docs/glossary.md` has the words that we use instead.
`name_exceptions.toml` says what is known and not mended yet. It may only shrink: an exception that is no longer needed is a
complaint too.
"""

import ast
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

MODULES = frozenset(
    {
        "again", "asking", "caller", "doubts", "earlier", "exchange", "held", "known_ids", "line", "log_room", "looking",
        "minutes", "recorded", "resuming", "talk", "talks", "telling", "written",
    }
)  # fmt: skip
"""Module names that tell a gesture instead of a concept."""
GESTURES = re.compile(
    r"(?:^|_)(?:deafen|doubts|ears?|earlier|known_ids|log_room|looking|(?<!small_)talks?|telling|wish(?:es)?)(?:_|$)"
)
"""The same within the names of modules, classes and functions, however these are written."""
TEST_PROPS = frozenset({"Desk", "Room", "Scene", "Stage", "Talk"})
"""What is tested is not a theatre: a test's own class is named after what it is, as a `CalendarCase`."""
IDENTIFIERS = {
    re.compile(r"(^|_)most(_|$)", re.I): '"max" is the word for a limit',
    re.compile(r"(^|_)told(_|$)", re.I): "say what was reported, and to whom",
    re.compile(r"^frm$"): "name what it is expected to be",
}
FUNCTIONS = {re.compile(r"^_?(plain|again)$|_again_by_|_from_before$"): "name what it returns"}
PHRASES = {
    re.compile(r"\bso many\b", re.I): "the number, or what it limits",
    re.compile(r"\bhow-manieth\b", re.I): '"the nth"',
    re.compile(r"\bstands? against\b", re.I): '"the precondition that failed"',
    re.compile(r"\blong over\b", re.I): '"expired"',
    re.compile(r"\bthe room of\b", re.I): '"the space used by"',
    re.compile(r"\bstumbled\b", re.I): '"failed"',
    re.compile(r"\b(?:go|goes|went|gone) on\b(?! and on)", re.I): '"continue"',
    re.compile(r"\b(?:is|are|was|were|be|been|being) told\b(?! apart)", re.I): '"is reported to", or who says it',
}
"""In docstrings, comments, messages and pages."""
TEXTS = ("*.md", "benchmarks/**/*.py", "docs/**/*.md", "examples/**/*", "scripts/**/*.py", "src/**/*", "tests/**/*.py")
SUFFIXES = frozenset({".css", ".html", ".js", ".md", ".py", ".sh", ".toml"})


class Complaint(NamedTuple):
    kind: str
    """The table of `name_exceptions.toml` that may know it."""
    key: str
    sentence: str


_CALLABLE = (ast.FunctionDef, ast.AsyncFunctionDef)


def complaints(root: Path) -> Iterator[Complaint]:
    """Yield a complaint for each offender below `root`, in a stable order."""
    classes: dict[str, list[str]] = defaultdict(list)
    stems: dict[str, list[str]] = defaultdict(list)
    for path in sorted((root / "src").rglob("*.py")):
        shown = path.relative_to(root).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=shown)
        for node in ast.walk(tree):
            if isinstance(node, (*_CALLABLE, ast.ClassDef)):
                yield from _gesture(shown, f'line {node.lineno}: the name "{node.name}"', node.name)
            if isinstance(node, ast.ClassDef):
                classes[node.name.lstrip("_")].append(f'"{shown}", line {node.lineno}: the class "{node.name}"')
        if path.stem != "__init__":
            stems[path.stem].append(f'The module "{shown}"')
        if path.stem not in MODULES:
            yield from _gesture(shown, "the module", path.stem)
        else:
            yield Complaint("identifiers", shown, f'"{shown}": name the module after the concept that it holds.')
        yield from _identifiers(shown, tree)
    for name, places in sorted(classes.items()):
        for place in places if len(places) > 1 else ():
            yield Complaint(
                "classes", name, f"{place}: another class has this name; give each thing a name of its own."
            )
    for stem, places in sorted(stems.items()):
        for place in places if len(places) > 1 else ():
            yield Complaint(
                "modules", stem, f"{place}: another module has this name; say in the name what each one holds."
            )
    yield from _props(root)
    yield from _phrases(root)


def _gesture(shown: str, what: str, name: str) -> Iterator[Complaint]:
    met = GESTURES.search(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower())
    if met is not None:
        word = met.group().strip("_")
        yield Complaint("gestures", shown, f'"{shown}", {what}: "{word}" tells a gesture; name the concept.')


def _identifiers(shown: str, tree: ast.Module) -> Iterator[Complaint]:
    seen: set[str] = set()
    for node in ast.walk(tree):
        for name, line in _names(node):
            rules = {**IDENTIFIERS, **FUNCTIONS} if isinstance(node, _CALLABLE) else IDENTIFIERS
            for pattern, instead in rules.items():
                if name not in seen and pattern.search(name):
                    seen.add(name)
                    yield Complaint("identifiers", shown, f'"{shown}", line {line}: the name "{name}": {instead}.')


def _names(node: ast.AST) -> Iterator[tuple[str, int]]:
    """The names that this node defines; those that it only uses are complained of where they are defined."""
    if isinstance(node, (*_CALLABLE, ast.ClassDef)):
        yield node.name, node.lineno
    elif isinstance(node, ast.arg):
        yield node.arg, node.lineno
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id, node.lineno
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr, node.lineno


def _props(root: Path) -> Iterator[Complaint]:
    for path in sorted((root / "tests").rglob("*.py")):
        shown = path.relative_to(root).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), filename=shown)):
            if isinstance(node, ast.ClassDef) and node.name.lstrip("_") in TEST_PROPS:
                sentence = (
                    f'"{shown}", line {node.lineno}: the class "{node.name}": name it after what it is in the test.'
                )
                yield Complaint("identifiers", shown, sentence)


def _phrases(root: Path) -> Iterator[Complaint]:
    own = Path(__file__).resolve()
    found = {
        path for pattern in TEXTS for path in root.glob(pattern) if path.suffix in SUFFIXES and path.resolve() != own
    }
    for path in sorted(found):
        shown = path.relative_to(root).as_posix()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for pattern, instead in PHRASES.items():
                for met in pattern.finditer(line):
                    yield Complaint("phrases", shown, f'"{shown}", line {number}: "{met.group()}": write {instead}.')


def unexpected(found: list[Complaint], known: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """The sentences of the complaints that `known` does not allow, and one for each exception that allows too much."""
    counts = Counter((one.kind, one.key) for one in found)
    for one in found:
        if counts[one.kind, one.key] > known.get(one.kind, {}).get(one.key, 0):
            yield one.sentence
    for kind, keys in known.items():
        for key, allowed in keys.items():
            now = counts[kind, key]
            if now < allowed:
                mend = f"write {now}" if now else "remove it"
                yield f'scripts/name_exceptions.toml allows {allowed} of "{key}" in [{kind}], and there are {now}: {mend}.'


def exceptions(path: Path) -> dict[str, dict[str, int]]:
    """How many complaints of a kind are known for a file or a name."""
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def main(root: Path) -> int:
    """Print every complaint about the project in `root`; 1 if there was one."""
    sentences = list(unexpected(list(complaints(root)), exceptions(root / "scripts" / "name_exceptions.toml")))
    for sentence in sentences:
        print(sentence)
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent))
