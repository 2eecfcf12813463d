"""image_draft_prompt: different, complete prompts, the same ones each time. Its guide's examples run in test_tool_guides."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tools.reference import kind, reference


def _prompts(run_tool, **args):
    return run_tool("image_draft_prompt", args)["data"]["prompts"]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_as_many_different_prompts_as_asked_for(run_tool, count):
    prompts = _prompts(run_tool, idea="A fox in snow", count=count)
    assert len(set(prompts)) == len(prompts) == count
    assert all(prompt.startswith("A fox in snow. ") for prompt in prompts)


def test_three_unless_asked_otherwise(run_tool):
    assert len(_prompts(run_tool, idea="A fox")) == 3


def test_the_style_that_the_user_named_is_in_every_prompt(run_tool):
    prompts = _prompts(run_tool, idea="A fox", style="  paper\n cut ", count=4)
    assert all("; paper cut; " in prompt and "watercolour" not in prompt for prompt in prompts)


@given(st.text(min_size=1, max_size=500), st.none() | st.text(min_size=1, max_size=100), st.integers(1, 4))
def test_every_prompt_fits_image_generate_and_is_the_same_again(run_tool, idea, style, count):
    args = {"idea": idea, "count": count} | ({} if style is None else {"style": style})
    envelope = run_tool("image_draft_prompt", args)
    assert run_tool("image_draft_prompt", args) == envelope
    if not idea.split():
        assert envelope["error"]["type"] == "VALIDATION"
        return
    assert all(0 < len(prompt) <= 1000 and "\n" not in prompt for prompt in envelope["data"]["prompts"])


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"idea": ""},
        {"idea": "a" * 501},
        {"idea": "a", "count": 0},
        {"idea": "a", "count": 5},
        {"idea": "a", "style": ""},
    ],
    ids=["none", "empty", "long", "count 0", "count 5", "empty style"],
)
def test_arguments_outside_of_the_schema_are_refused(run_tool, args):
    assert run_tool("image_draft_prompt", args)["error"]["type"] == "VALIDATION"


async def test_under_policy():
    with reference("image_draft_prompt") as tools:
        async with tools.runtime() as runtime:
            spoken = await runtime.open_session(mode="voice")
            assert kind(await spoken.call("image_draft_prompt", {"idea": "A fox"})) == "MODE_RESTRICTED"
            typed = await runtime.open_session()
            first = await typed.call("image_draft_prompt", {"idea": "A fox"}, call_id="c1")
            assert first.meta["budget"] == {"retrieval": 5}, "a utility costs nothing of the retrieval budget"
            again = await typed.call("image_draft_prompt", {"idea": "A fox"}, call_id="c1")
            assert again.meta["replayed"]
            assert again.data == first.data
            await typed.call("image_draft_prompt", {"idea": "A fox"}, call_id="c2")
            third = await typed.call("image_draft_prompt", {"idea": "A fox"}, call_id="c3")
            assert kind(third) == "LOOP_DETECTED"
