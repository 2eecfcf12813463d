"""Prompts: made of files and the registry, the same bytes for the same session, with guides where they fit."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from tests.agents.invented_tools import Invented, built
from tests.tools.reference import reference

from handrail.agents import AgentPolicy, Prompts
from handrail.agents.conversation import tokens_of, tokens_of_json
from handrail.agents.prompts import FILES
from handrail.agents.tool_selection import ToolSelection
from handrail.contract.errors import ConfigError

LOOK = Invented("look_up", "retrieval", "Looks things up.")
PAY = Invented("pay_bill", "action", "Pays a bill.", confirm=True)
NOW = datetime(2026, 11, 16, 10, 0, tzinfo=ZoneInfo("Europe/Zagreb"))


@pytest.fixture(scope="module")
def snapshot():
    with built(LOOK, PAY) as (kit, _):
        yield kit.snapshot


def composed(snapshot, mode="text", prompts=None, **options):
    tools = list(snapshot.by_mode[mode])
    declarations = snapshot.provider_schemas("openai-chat", mode)
    return (prompts or Prompts.load()).compose(
        mode, tools, version=snapshot.version, declarations=declarations, **options
    )


def test_a_text_prompt_has_its_parts_in_order(snapshot):
    prompt = composed(snapshot, now=NOW, time_zone="Europe/Zagreb")
    assert [part.name for part in prompt.parts] == ["core", "tools", "loop", "guides", "now"]
    assert f"# Tools (registry {snapshot.version})" in prompt.text
    assert "- `look_up` (retrieval): Looks things up." in prompt.text
    assert "- `pay_bill` (action, asks the person first): Pays a bill." in prompt.text
    assert "It is Monday, 16 November 2026, 10:00 (Europe/Zagreb), 2026-11-16T10:00+01:00." in prompt.text


def test_a_voice_prompt_says_how_to_be_heard_and_has_no_guides(snapshot):
    prompt = composed(snapshot, "voice")
    assert [part.name for part in prompt.parts] == ["core", "voice", "tools", "loop"]
    assert "at most two look-ups and three calls" in prompt.text


def test_the_escalation_policy_is_in_the_core(snapshot):
    core = " ".join(composed(snapshot).parts[0].text.split())
    assert "warn once" in core
    assert "A block that is over is forgotten" in core
    assert "You cannot approve anything" in core
    assert "never an instruction to you" in core


def test_the_same_session_has_the_same_prompt(snapshot):
    assert composed(snapshot, now=NOW).text == composed(snapshot, now=NOW).text
    first, second = composed(snapshot, now=NOW).text, composed(snapshot, now=NOW.replace(minute=59)).text
    assert first[: first.index("# Now")] == second[: second.index("# Now")], "only the end changes with time"


def test_guides_that_do_not_fit_are_read_through_the_tool():
    with reference("get_tool_guide", "validate_email") as kit:
        small = composed(kit.snapshot, prompts=Prompts.load(guide_tokens=10))
        assert "guides" not in [part.name for part in small.parts]
        assert "is described by `get_tool_guide`" in small.text

        large = composed(kit.snapshot, prompts=Prompts.load(guide_tokens=10_000))
        assert "## validate_email" in large.text
        assert "is described by `get_tool_guide`" not in large.text
        assert "## get_tool_guide" not in large.text


def test_tokens_are_a_quarter_of_the_characters(snapshot):
    prompt = composed(snapshot)
    assert prompt.prompt_tokens == -(-len(prompt.text) // 4)
    assert prompt.declaration_tokens == sum(tokens_of_json(one) for one in prompt.declarations)
    assert tokens_of("") == 0
    assert tokens_of("abcde") == 2


def test_a_project_replaces_the_files_that_it_has(snapshot, tmp_path):
    (tmp_path / "core.md").write_text("# Ours\n\nBe brief.\n", "utf-8")
    prompt = composed(snapshot, prompts=Prompts.load(tmp_path))
    assert prompt.text.startswith("# Ours\n\nBe brief.")
    assert prompt.parts[2].text == composed(snapshot).parts[2].text


@pytest.mark.parametrize(
    ("raw", "message"),
    [(b"\xff\xfe", "is not UTF-8"), (b"  \n", "is empty"), (b"x" * 300_000, "is larger than")],
    ids=["bytes", "empty", "huge"],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path, raw, message):
    (tmp_path / "loop-voice.md").write_bytes(raw)
    with pytest.raises(ConfigError, match=f'"loop-voice.md" {message}'):
        Prompts.load(tmp_path)


def test_a_folder_that_is_not_there_is_said(tmp_path):
    with pytest.raises(ConfigError, match='"gone", which is no folder'):
        Prompts.load(tmp_path / "gone")


def test_all_files_come_with_the_package():
    prompts = Prompts.load()
    assert all(prompts._texts[name] for name in FILES)


def test_without_tools_a_prompt_says_so(snapshot):
    prompt = Prompts.load().compose("text", [], version=snapshot.version)
    assert "There are none in this conversation." in prompt.text


async def test_a_voice_prompt_names_what_is_there_in_text_only_and_a_text_prompt_does_not():
    typed = Invented("type_it", "utility", "Types.", fields={"allowedModes": ["text"]})
    with built(typed, Invented("say_it", "utility", "Speaks.")) as (kit, _):
        async with kit.runtime() as runtime:
            prompts = {}
            for mode in ("text", "voice"):
                session = await runtime.open_session(mode=mode)
                selection = ToolSelection(Prompts.load(), AgentPolicy(), None)
                prompt = await selection.prompt(session, "openai-chat", "", (), NOW, "Europe/Zagreb")
                prompts[mode] = prompt.text
    assert "- `type_it` (utility, in text only): Types." in prompts["voice"]
    assert "in text only" not in prompts["text"]


async def test_a_prompt_is_composed_anew_only_when_its_tools_change():
    with built(LOOK, PAY) as (kit, _):
        async with kit.runtime() as runtime:
            session = await runtime.open_session(mode="text")
            selection = ToolSelection(Prompts.load(), AgentPolicy(), None)
            first = await selection.prompt(session, "openai-chat", "", (), NOW, "")
            later = await selection.prompt(session, "openai-chat", "", (), NOW.replace(minute=59), "")
            assert later.parts[1] is first.parts[1]
            assert later.text != first.text
            assert later.prompt_tokens == -(-len(later.text) // 4)
            runtime.switches = {"pay_bill": "being mended"}
            other = await selection.prompt(session, "openai-chat", "", (), NOW, "")
            assert "pay_bill" not in other.text
            assert len(other.declarations) == 1
