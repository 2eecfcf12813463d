"""Under which name a session's user stands in the audit log when the session continues on another connection."""

from __future__ import annotations

from pathlib import Path

import pytest

from handrail.testing import open_tools


async def test_a_session_that_is_here_keeps_its_users_name_without_a_look_at_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tools").mkdir()
    store = f"sqlite:///{tmp_path / 'store.db'}"
    with open_tools(tmp_path / "tools") as tools:
        async with tools.runtime(store=store, audit=tmp_path / "audit") as runtime:
            session = await runtime.open_session(user="ana")
            name, kept = session.pseudonym, session.subject
            assert name is not None

            async def never(*_: object) -> None:
                raise AssertionError("the store was asked")

            with monkeypatch.context() as patch:
                patch.setattr(runtime.store, "audit_subject", never)
                assert await runtime.resume_session(session.id, token=session.token) is session
            assert (session.pseudonym, session.subject) == (name, kept)


async def test_what_is_kept_of_a_users_words_changes_with_the_policy_of_the_new_connection(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    store = f"sqlite:///{tmp_path / 'store.db'}"
    with open_tools(tmp_path / "tools") as tools:
        async with tools.runtime(store=store, audit=tmp_path / "audit") as runtime:
            session = await runtime.open_session(user="ana")
            name, sealed = session.pseudonym, session.subject
            assert sealed is not None
            assert sealed.secret
            for how, secret in (("none", b""), ("erasable", sealed.secret)):
                await runtime.resume_session(session.id, token=session.token, policy={"audit_arguments": how})
                assert session.pseudonym == name
                assert session.subject is not None
                assert session.subject.secret == secret
