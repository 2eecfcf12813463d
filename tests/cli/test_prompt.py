"""`handrail prompt`: what a model would see, with counts."""

import json

import pytest


def test_the_prompt_of_a_mode_is_printed_with_counts(built, handrail):
    said = handrail("prompt", "--mode", "voice")

    assert said.code == 0, said.err
    assert said.out.startswith("# Core\n")
    assert "# Voice\n" in said.out
    assert "- `lookup_order` (retrieval)" in said.out
    counts = said.out.split("--- tokens (characters / 4) ---")[1]
    assert "2 tools" in counts
    assert "total" in counts


def test_json_has_text_parts_declarations_and_counts(built, handrail):
    said = handrail("prompt", "--json", "--now", "2026-03-29T09:30+01:00")
    told = json.loads(said.out)

    assert told["mode"] == "text"
    assert told["tools"] == ["cancel_order", "count_words", "lookup_order"]
    assert told["tokens"]["prompt"] == -(-len(told["prompt"]) // 4)
    assert told["tokens"]["total"] == told["tokens"]["prompt"] + told["tokens"]["declarations"]
    assert "\n\n".join(part["text"] for part in told["parts"]) == told["prompt"]
    assert [one["function"]["name"] for one in told["declarations"]] == told["tools"]
    assert handrail("prompt", "--json", "--now", "2026-03-29T09:30+01:00").out == said.out


def test_only_the_named_tools_are_in_it(built, handrail):
    told = json.loads(handrail("prompt", "--json", "--tools", "lookup_order, count_words").out)
    assert told["tools"] == ["count_words", "lookup_order"]
    assert "cancel_order" not in told["prompt"]


def test_declarations_are_printed_where_they_are_wanted(built, handrail):
    assert '{"type":"function"' in handrail("prompt", "--declarations").out


def test_the_prompts_of_a_project_take_the_place_of_ours(built, handrail):
    (built / "words").mkdir()
    (built / "words" / "core.md").write_text("# Ours\n", "utf-8")
    with (built / "handrail.toml").open("a", encoding="utf-8") as file:
        file.write('\n[prompts]\ndirectory = "words"\n')
    assert handrail("prompt").out.startswith("# Ours\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--tools", "lookup_ordr"), 'did you mean "lookup_order"'),
        (("--now", "soon"), "--now must be a time"),
        (("--provider", "smoke-signals"), 'no schemas for "smoke-signals"'),
        (("--mode", "mime"), "invalid choice"),
    ],
    ids=["tool", "now", "provider", "mode"],
)
def test_wrong_usage_is_a_sentence(built, handrail, words, message):
    said = handrail("prompt", *words)
    assert said.code in (1, 2)
    assert message in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('model = "gpt-9"', '"gpt-9"'),
        ('time_zone = "Mars/Base"', '"Mars/Base"'),
        ("rounds = 0", '"rounds" in [agent]'),
    ],
    ids=["model", "zone", "rounds"],
)
def test_wrong_settings_are_named(built, handrail, line, message):
    with (built / "handrail.toml").open("a", encoding="utf-8") as file:
        file.write(f"\n[agent]\n{line}\n")
    said = handrail("prompt")
    assert said.code == 2
    assert message in said.err


@pytest.mark.parametrize(
    ("lines", "zone"),
    [
        ('[services.calendar]\ntime_zone = "Asia/Kathmandu"\n', "Asia/Kathmandu"),
        ('[services.calendar]\ntime_zone = "Asia/Kathmandu"\n[agent]\ntime_zone = "Asia/Tokyo"\n', "Asia/Tokyo"),
        (
            '[services.calendar]\ntime_zone = "Asia/Kathmandu"\n[services.shop]\ntime_zone = "Asia/Tokyo"\n',
            None,
        ),
    ],
    ids=["of the service", "of the agent", "of services that differ"],
)
def test_a_conversation_goes_by_the_zone_of_the_services_unless_the_agent_names_one(built, handrail, lines, zone):
    with (built / "handrail.toml").open("a", encoding="utf-8") as file:
        file.write(f"\n{lines}")
    said = handrail("prompt")
    assert said.code == 0, said.err
    assert [one for one in ("Asia/Kathmandu", "Asia/Tokyo") if one in said.out] == ([zone] if zone else [])
