"""Voice from settings: the text model behind it where no live one is named, and what the doctor says of it."""

from pathlib import Path

import pytest
from tests.server.model import PlayModel
from tests.server.voice.kit import on_the_line, ticket_for, voice_server

from handrail.app import live_missing, open_live_model, open_voice, voice_policy
from handrail.cli import main
from handrail.contract.errors import ConfigError
from handrail.server.voice.voice_options import VoiceOptions
from handrail.settings import Settings, load_settings


def offline(folder: Path):
    """What `handrail serve` does, on the model of these tests."""
    return lambda runtime, model: open_voice(Settings(project=folder), runtime, model)


async def test_without_a_live_model_the_client_hears_and_speaks(tmp_path):
    async with voice_server(tmp_path, agent=offline(tmp_path)) as server:
        api = await server.open()
        given = await ticket_for(api)
        assert (given["offline"], given["model"]) == (True, "play")
        assert given["audio"] == {"input": {"rates": []}, "output": {"rate": 0}}
        async with on_the_line(api, rate=0, abilities={"sound": False, "speaks": True, "recognises": True}) as client:
            assert client.messages[0]["offline"] is True
            await client.send("speech", state="started")
            await client.send("speech", state="ended")
            await client.send("text", id="m1", text='call look {"q": "x"}', spoken=True)
            assert (await client.message("tool_finished"))["ok"] is True
            told = await client.message("speak", kind="answer")
            assert "look: ok" in told["text"]
            await client.send("spoken", id=told["id"], completed=True)
            done = await client.message("turn_done")
            assert "look: ok" in done["text"]
            assert client.sounds == []
            await client.send("end")
            assert await client.closed() == 1000
        shown = await api.show()
        assert [one["role"] for one in shown["messages"]] == ["user", "assistant"]


async def test_audio_for_a_model_that_does_not_hear_is_refused(tmp_path):
    async with voice_server(tmp_path, agent=offline(tmp_path)) as server:
        api = await server.open()
        async with on_the_line(api, rate=16_000) as client:
            assert client.messages[0]["audio"] == {"input": {"rate": 0}, "output": {"rate": 0}}
            await client.wire.send(b"\0\0" * 160)
            assert "does not hear" in await client.refused(4400)


def test_settings_come_from_the_file_and_the_environment(tmp_path):
    (tmp_path / "handrail.toml").write_text('[voice]\nlanguage = "de"\nidle_seconds = 60\nfiller = ["Moment."]\n')
    settings = load_settings(tmp_path, {"HANDRAIL_VOICE_GRACE_SECONDS": "5", "HANDRAIL_VOICE_MODEL": "gemini-live:x"})
    policy = voice_policy(settings)
    assert (policy.language, policy.idle_seconds, policy.grace_seconds) == ("de", 60.0, 5.0)
    assert (policy.model, policy.filler) == ("gemini-live:x", ("Moment.",))
    assert VoiceOptions.from_settings(settings).grace_seconds == 5.0


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('recogniser = "mine"', '"provider" or "local"'),
        ("idle_seconds = 0", "greater than 0"),
        ('voices = "a"', "voice"),
        ("model = 3", "text"),
    ],
)
def test_a_setting_that_is_not_right_is_named(tmp_path, line, words):
    (tmp_path / "handrail.toml").write_text(f"[voice]\n{line}\n")
    with pytest.raises(ConfigError, match=words):
        load_settings(tmp_path, {})


def test_a_live_model_that_cannot_be_used_is_a_sentence(tmp_path):
    wrong = Settings(project=tmp_path, voice_model="gemini:x")
    assert "gemini-live" in (live_missing(wrong) or "")
    with pytest.raises(ConfigError, match="gemini-live"):
        open_live_model(wrong, PlayModel())
    assert live_missing(Settings(project=tmp_path)) is None


def test_the_doctor_says_what_voice_needs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HANDRAIL_VOICE_MODEL", "openai-realtime:x")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert main(["doctor"]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.split()[1] == "voice"]
    assert line.startswith("FAIL")
    assert "OPENAI_API_KEY" in line
