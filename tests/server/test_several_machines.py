"""`handrail serve` twice on one PostgreSQL, each in a folder of its own, as on two machines."""

import signal
import time
from pathlib import Path

import httpx2 as httpx
import pytest
from tests.server.test_commands import TOML, serving

from handrail.cli import main


@pytest.fixture
def folders(tmp_path: Path, postgres, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.setenv("HANDRAIL_STORE_URL", postgres.new_database())
    made = [tmp_path / name for name in ("one", "two")]
    for folder in made:
        folder.mkdir()
        (folder / "handrail.toml").write_text(TOML)
    return made


def said(url: str, session: dict, headers: dict, message: str, text: str) -> str:
    """The stream of an answer; a process that is busy in the session is waited for."""
    path = f"{url}/api/sessions/{session['sessionId']}/messages"
    named = {**headers, "X-Session-Token": session["token"], "Accept": "text/event-stream"}
    for _ in range(300):
        answer = httpx.post(path, json={"id": message, "text": text}, headers=named, timeout=60)
        if answer.status_code == 200:
            return answer.text
        assert answer.status_code in (409, 503), answer.text
        time.sleep(0.1)
    raise AssertionError(f"never answered: {answer.text}")


def test_keys_and_conversations_of_one_machine_are_those_of_the_other(folders, monkeypatch, capsys):
    with serving(folders[0]) as (first, process), serving(folders[1]) as (second, _):
        assert first["key"] is not None
        assert second["key"] is None, "there is a key, though not of this machine"
        headers = {"Authorization": f"Bearer {first['key']}"}
        opened = httpx.post(f"{first['url']}/api/sessions", json={}, headers=headers).json()
        assert "event: done" in said(first["url"], opened, headers, "m1", "good morning")
        (listed,) = httpx.get(f"{second['url']}/api/sessions", headers=headers).json()["sessions"]
        assert (listed["sessionId"], listed["token"], listed["title"]) == (
            opened["sessionId"],
            opened["token"],
            "good morning",
        )
        assert "event: done" in said(second["url"], opened, headers, "m2", "good evening")
        assert "event: done" in said(first["url"], opened, headers, "m3", "good night")
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        assert "event: done" in said(second["url"], opened, headers, "m4", "still there?")
        named = {**headers, "X-Session-Token": opened["token"]}
        shown = httpx.get(f"{second['url']}/api/sessions/{opened['sessionId']}", headers=named).json()
        asked = [one["text"] for one in shown["messages"] if one["role"] == "user"]
        assert asked == ["good morning", "good evening", "good night", "still there?"]
        # A key that is revoked on one machine is refused by the other.
        monkeypatch.chdir(folders[0])
        assert main(["keys", "revoke", "console"]) == 0
        for _ in range(300):
            if httpx.get(f"{second['url']}/api/tools", headers=headers).status_code == 401:
                break
            time.sleep(0.05)
        else:
            raise AssertionError("the key is still accepted")
    for folder in folders:
        assert not list(folder.glob("*.db")), "nothing of it lies on a machine"
