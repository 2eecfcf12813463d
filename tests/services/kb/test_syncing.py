"""Following a folder, in both databases that a base may be in."""

from pathlib import Path

import pytest

from handrail.errors import UsageError
from handrail_reference.services.kb.syncing import folder_origin, sync


@pytest.fixture
def follow(open_base):
    """`follow(folder, tenant="acme")` syncs it: (added, changed, removed, unchanged). `follow.left()`: what there is then."""
    kb = open_base()

    def run(folder: Path, *, name: str = "", moved: bool = False, **defaults: str) -> tuple[int, int, int, int]:
        done = sync(kb.database, folder_origin(folder, name), defaults=defaults, moved=moved, allow_empty=True)
        assert done.problems == []
        return done.added, done.changed, done.removed, done.unchanged

    def left() -> list[tuple[str, str, str]]:
        query = "SELECT s.tenant, s.namespace, r.id FROM record r JOIN scope s ON s.id = r.scope ORDER BY 1, 2, 3"
        return [tuple(row) for row in kb.database.read_now(lambda db: db.execute(query).fetchall())]

    run.left = left
    return run


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    folder = tmp_path / "handbook"
    folder.mkdir()
    (folder / "leave.md").write_text("# Leave\n\nThirty days.")
    (folder / "pay.md").write_text("# Pay\n\nOn the first.")
    return folder


def test_a_folder_is_followed_in_either_database(open_base, tmp_path: Path) -> None:
    kb = open_base({"id": "doc:mine", "title": "Mine", "text": "Kept."})
    pages = tmp_path / "handbook"
    pages.mkdir()
    (pages / "leave.md").write_text("# Leave\n\nThirty days.")
    (pages / "pay.md").write_text("# Pay\n\nOn the first.")

    def counts() -> tuple[int, int, int, int]:
        done = sync(kb.database, folder_origin(pages, ""), defaults={})
        assert done.problems == []
        return done.added, done.changed, done.removed, done.unchanged

    assert counts() == (2, 0, 0, 0)
    assert counts() == (0, 0, 0, 2)
    (pages / "leave.md").write_text("# Leave\n\nThirty-five days.")
    (pages / "pay.md").unlink()
    assert counts() == (0, 1, 1, 0)
    left = kb.database.read_now(lambda db: db.execute("SELECT id FROM record ORDER BY id").fetchall())
    assert [row[0] for row in left] == ["doc:leave", "doc:mine"]


def test_one_folder_is_followed_for_each_tenant_by_itself(follow, pages: Path) -> None:
    assert follow(pages, tenant="acme") == (2, 0, 0, 0)
    assert follow(pages, tenant="beta") == (2, 0, 0, 0)
    assert follow(pages, tenant="acme") == (0, 0, 0, 2)
    (pages / "pay.md").unlink()
    assert follow(pages, tenant="beta") == (0, 0, 1, 1)
    ours, theirs = ("acme", "studio"), ("beta", "studio")
    assert follow.left() == [(*ours, "doc:leave"), (*ours, "doc:pay"), (*theirs, "doc:leave")]
    assert follow(pages, tenant="acme") == (0, 0, 1, 1)


def test_one_folder_is_followed_for_each_namespace_and_owner_by_itself(follow, pages: Path) -> None:
    runs = [
        {"namespace": "studio"},
        {"namespace": "public"},
        *({"namespace": "personal", "owner": one} for one in "ab"),
    ]
    for defaults in runs:
        assert follow(pages, **defaults) == (2, 0, 0, 0)
    for defaults in runs:
        assert follow(pages, **defaults) == (0, 0, 0, 2)
    (pages / "pay.md").unlink()
    follow(pages, namespace="studio")
    assert [name for *_, name in follow.left()] == ["doc:leave"] * 4, "a page that is gone is gone from all of them"


def test_a_page_that_names_its_tenant_is_followed_and_outlives_runs_for_others(follow, pages: Path) -> None:
    (pages / "pay.md").write_text("---\ntenant: beta\nnamespace: board\n---\n# Pay\n\nOn the first.")
    both = [("acme", "studio", "doc:leave"), ("beta", "board", "doc:pay")]
    assert follow(pages, tenant="acme") == (2, 0, 0, 0)
    assert follow(pages, tenant="acme") == (0, 0, 0, 2)
    (pages / "pay.md").write_text("---\ntenant: beta\nnamespace: board\n---\n# Pay\n\nOn the last.")
    assert follow(pages, tenant="acme") == (0, 1, 0, 1)
    assert follow.left() == both
    (pages / "pay.md").unlink()
    assert follow(pages, tenant="acme") == (0, 0, 0, 1)
    assert follow.left() == both, "a run for one tenant takes nothing from another"
    assert follow(pages, tenant="beta") == (1, 0, 1, 0)
    assert follow.left() == [("acme", "studio", "doc:leave"), ("beta", "studio", "doc:leave")]


def test_a_page_that_names_its_namespace_goes_when_it_is_deleted(follow, pages: Path) -> None:
    (pages / "pay.md").write_text("---\nnamespace: board\n---\n# Pay\n\nOn the first.")
    assert follow(pages, namespace="studio") == (2, 0, 0, 0)
    assert follow(pages, namespace="studio") == (0, 0, 0, 2)
    (pages / "pay.md").unlink()
    assert follow(pages, namespace="studio") == (0, 0, 1, 1)


def test_a_page_that_no_longer_names_its_namespace_leaves_nothing_there(follow, pages: Path) -> None:
    (pages / "pay.md").write_text("---\nnamespace: public\n---\n# Pay\n\nOn the first.")
    follow(pages)
    (pages / "pay.md").write_text("# Pay\n\nOn the first.")
    assert follow(pages) == (1, 0, 1, 1)
    assert follow.left() == [("", "studio", "doc:leave"), ("", "studio", "doc:pay")]


def test_a_second_folder_of_the_same_name_is_refused_until_it_is_said_to_replace_the_first(
    follow, pages: Path, tmp_path: Path
) -> None:
    other = tmp_path / "another" / "handbook"
    other.mkdir(parents=True)
    (other / "rooms.md").write_text("# Rooms\n\nTwo.")
    assert follow(pages) == (2, 0, 0, 0)
    with pytest.raises(UsageError) as refused:
        follow(other, tenant="acme")
    assert str(refused.value) == (
        f'The name "handbook" belongs to "{pages}", and this is "{other}"; give this one another name by --name, or say '
        "--moved if it has taken the place of the other."
    )
    assert follow(other, name="rooms") == (1, 0, 0, 0)
    assert follow(other, name="rooms") == (0, 0, 0, 1)
    assert follow(tmp_path / "another" / ".." / "handbook") == (0, 0, 0, 2)
    (other / "rooms.md").write_text("---\nid: doc:two\n---\n# Rooms\n\nTwo.")
    assert follow(other, moved=True) == (1, 0, 2, 0)
    assert follow(other) == (0, 0, 0, 1)
    with pytest.raises(UsageError, match="belongs to"):
        follow(pages)
