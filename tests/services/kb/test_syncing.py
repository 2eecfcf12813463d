"""Following a folder, in both databases that a base may be in."""

from pathlib import Path

from handrail_reference.services.kb.syncing import folder_origin, sync


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
