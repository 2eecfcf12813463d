"""The knowledge that a new base begins with: Handrail's own pages, so that a first question has a cited answer.

An installed package carries the pages in `handrail_reference/starter`; in a checkout they are where they are written. Each
section becomes a record. They are put into a base that is new and empty, or where somebody asks for them, kept current while
they are there, and once deleted they stay away.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import orjson

import handrail_reference
from handrail_reference.services.kb.connection import KnowledgeConnection
from handrail_reference.services.kb.record import KnowledgeRecord, make_record
from handrail_reference.services.kb.record_writes import Tally, get_fact, put_records, remove_records, set_fact
from handrail_reference.services.kb.starter_answers import ANSWERS, in_sentences

SOURCE = "handrail"
_FACT = "starter"
_HEADING = re.compile(r"^(#{1,2}) +(.+?)\s*$")
_FENCE = re.compile(r"^(`{3,}|~{3,})")
_NOT_SLUG = re.compile(r"[^a-z0-9]+")


def is_settled(db: KnowledgeConnection) -> bool:
    """Whether `plant` has nothing to do. Only reads: most of the time nobody needs to be waited for."""
    planted = get_fact(db, _FACT)
    if planted is None:
        return db.execute("SELECT 1 FROM record LIMIT 1").fetchone() is not None
    return planted == _version(starter_records())


def plant(db: KnowledgeConnection) -> None:
    """Put the starter records into a new base, or bring those that are there up to date."""
    if is_settled(db):
        return
    if get_fact(db, _FACT) is None or _planted(db):
        replant(db, Tally())
    else:
        set_fact(db, _FACT, _version(starter_records()))  # they were deleted, and stay away


def replant(db: KnowledgeConnection, tally: Tally) -> None:
    """Put the starter records in as they are now, whatever was there or was deleted before."""
    records = starter_records()
    kept = {record.id for record in records}
    remove_records(db, [key for key, name in _planted(db) if name not in kept])
    put_records(db, records, tally)
    set_fact(db, _FACT, _version(records))


def _planted(db: KnowledgeConnection) -> list[tuple[int, str]]:
    # Those of no tenant: what an operator gave to a tenant is the operator's.
    sql = "SELECT r.key, r.id FROM record r JOIN scope s ON s.id = r.scope WHERE r.source = ? AND s.tenant = ''"
    return db.execute(sql, (SOURCE,)).fetchall()


def _version(records: Sequence[KnowledgeRecord]) -> str:
    return sha256(orjson.dumps([record.to_dict() for record in records])).hexdigest()


def starter_records() -> list[KnowledgeRecord]:
    """Handrail's pages and guides as records of the namespace `studio`; none where the pages are not to be found."""
    package = Path(handrail_reference.__file__).parent
    packed = package / "starter"
    root = packed if packed.is_dir() else package.parents[1]
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    records = {record.id: record for page in pages if page.is_file() for record in _page(page)}
    for guide in sorted(package.glob("tools/*/guide.md")):
        record = _guide(guide)
        records[record.id] = record
    for name, (title, text) in ANSWERS.items() if records else ():
        answer = _record(f"answer_{name}", f"Handrail: {title}", text, "README.md", ["answer", name])
        records[answer.id] = answer
    return list(records.values())


def _page(page: Path) -> Iterator[KnowledgeRecord]:
    name = "overview" if page.stem == "README" else _slug(page.stem)
    place = page.name if page.stem == "README" else f"docs/{page.name}"
    markdown = page.read_text(encoding="utf-8")
    subject = next((line[2:].strip() for line in markdown.splitlines() if line.startswith("# ")), page.stem)
    for heading, text in _sections(markdown):
        own = heading if heading != subject else ""
        title = f"{subject}: {own}" if own else subject
        yield _record(f"{name}_{_slug(own)}" if own else name, title, text, place, [name])


def _guide(guide: Path) -> KnowledgeRecord:
    tool = guide.parent.name.replace("-", "_")
    text = guide.read_text(encoding="utf-8").split("\n", 1)[-1].strip()
    return _record(f"tool_{tool}", f"The tool {tool}", text, f"{guide.parent.name}/guide.md", ["tool", tool])


def _record(slug: str, title: str, text: str, place: str, tags: list[str]) -> KnowledgeRecord:
    return make_record(
        {
            "id": f"doc:handrail_{slug}",
            "title": title,
            "text": in_sentences(text),
            "tags": tags,
            "namespace": "studio",
            "source_type": "documentation",
            "source": SOURCE,
            "metadata": {"page": place},
        }
    )


def _sections(markdown: str) -> Iterator[tuple[str, str]]:
    """(heading, text) of each part that has text; a `#` inside of a code block is no heading."""
    heading, lines, fence = "", [], ""
    for line in markdown.splitlines():
        found = _FENCE.match(line)
        if found and (not fence or line.startswith(fence)):
            fence = "" if fence else found[1]
        match = None if fence else _HEADING.match(line)
        if match is None:
            lines.append(line)
            continue
        if "\n".join(lines).strip():
            yield heading or match[2], "\n".join(lines).strip()
        heading, lines = match[2], []
    if "\n".join(lines).strip():
        yield heading, "\n".join(lines).strip()


def _slug(text: str) -> str:
    return _NOT_SLUG.sub("_", text.lower()).strip("_")[:80]
