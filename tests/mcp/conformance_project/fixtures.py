"""The tools, prompts and resources that the conformance suite calls, each a tool with `ctx.client`."""

import asyncio
import base64
import json
from functools import partial
from typing import Literal

from handrail import ToolError, tool

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
WAV = b"RIFF$\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00@\x1f\x00\x00@\x1f\x00\x00\x01\x00\x08\x00data\x00\x00\x00\x00"
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}

fixture = partial(tool, category="utility", side_effects="none", capabilities=["client"], timeout_ms=60_000)


@fixture()
def test_simple_text(ctx) -> str:
    """Give a simple text."""
    ctx.client.text("This is a simple text response for testing.")
    return "done"


@fixture()
def test_image_content(ctx) -> str:
    """Show a picture."""
    ctx.client.image(PNG, "image/png")
    return "done"


@fixture()
def test_audio_content(ctx) -> str:
    """Play a sound."""
    ctx.client.audio(WAV, "audio/wav")
    return "done"


@fixture()
def test_embedded_resource(ctx) -> str:
    """Show a document."""
    ctx.client.resource("test://embedded-resource", "This is an embedded resource content.")
    return "done"


@fixture()
def test_multiple_content_types(ctx) -> str:
    """Show text, a picture and a document."""
    ctx.client.text("Multiple content types test:")
    ctx.client.image(PNG, "image/png")
    ctx.client.resource("test://mixed-content-resource", '{"test":"data","value":123}', "application/json")
    return "done"


async def _log(ctx) -> str:
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        ctx.client.log("info", line)
        await asyncio.sleep(0.05)
    return "logged"


@fixture()
async def test_tool_with_logging(ctx) -> str:
    """Log three lines."""
    return await _log(ctx)


@fixture()
async def test_logging_tool(ctx) -> str:
    """Log three lines."""
    return await _log(ctx)


@fixture()
def test_error_handling(ctx) -> str:
    """Fail."""
    raise ToolError("PERMANENT", "This tool intentionally returns an error for testing")


@fixture()
async def test_tool_with_progress(ctx) -> str:
    """Report progress."""
    for done in (0, 50, 100):
        ctx.client.progress(done, 100)
        await asyncio.sleep(0.05)
    return "done"


@fixture()
async def test_sampling(prompt: str, ctx) -> str:
    """Ask the client's model.

    Args:
        prompt: What it is asked.
    """
    answers = await ctx.client.ask(sample=ctx.client.sampling(prompt, 100))
    said = answers["sample"]["content"]["text"]
    ctx.client.text(f"LLM response: {said}")
    return said


@fixture()
async def test_elicitation(message: str, ctx) -> str:
    """Ask the user.

    Args:
        message: What the user is asked.
    """
    texts = {"username": "User's response", "email": "User's email address"}
    properties = {name: {"type": "string", "description": text} for name, text in texts.items()}
    schema = {"type": "object", "properties": properties, "required": ["username", "email"]}
    answer = (await ctx.client.ask(user=ctx.client.elicitation(message, schema)))["user"]
    ctx.client.text(f"User response: action: {answer['action']}, content: {json.dumps(answer.get('content'))}")
    return answer["action"]


async def _elicited(ctx, properties) -> str:
    schema = {"type": "object", "properties": properties, "required": []}
    answer = (await ctx.client.ask(user=ctx.client.elicitation("Please choose", schema)))["user"]
    said = f"Elicitation completed: action={answer['action']}, content={json.dumps(answer.get('content', {}))}"
    ctx.client.text(said)
    return said


@fixture()
async def test_elicitation_sep1034_defaults(ctx) -> str:
    """Ask with defaults."""
    return await _elicited(
        ctx,
        {
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            "verified": {"type": "boolean", "default": True},
        },
    )


@fixture()
async def test_elicitation_sep1330_enums(ctx) -> str:
    """Ask with every kind of enumeration."""
    three = ["option1", "option2", "option3"]
    titled = [
        {"const": f"value{n}", "title": f"{word} Option"} for n, word in enumerate(("First", "Second", "Third"), 1)
    ]
    chosen = [
        {"const": f"value{n}", "title": f"{word} Choice"} for n, word in enumerate(("First", "Second", "Third"), 1)
    ]
    return await _elicited(
        ctx,
        {
            "untitledSingle": {"type": "string", "enum": three},
            "titledSingle": {"type": "string", "oneOf": titled},
            "legacyEnum": {
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": three}},
            "titledMulti": {"type": "array", "items": {"anyOf": chosen}},
        },
    )


@fixture()
async def test_streaming_elicitation(ctx) -> str:
    """Report progress, then ask."""
    ctx.client.progress(1, 2)
    await ctx.client.ask(user_name=ctx.client.elicitation("What is your name?", NAME))
    return "done"


@fixture()
async def test_missing_capability(ctx) -> str:
    """Need a model of the client."""
    await ctx.client.ask(sample=ctx.client.sampling("Hello", 10))
    return "done"


# Questions of 2026-07-28


@fixture()
async def test_input_required_result_elicitation(ctx) -> str:
    """Ask for a name."""
    answer = (await ctx.client.ask(user_name=ctx.client.elicitation("What is your name?", NAME)))["user_name"]
    said = f"Hello, {(answer.get('content') or {}).get('name', 'stranger')}!"
    ctx.client.text(said)
    return said


@fixture()
async def test_input_required_result_sampling(ctx) -> str:
    """Ask for a capital."""
    question = ctx.client.sampling("What is the capital of France?", 100)
    said = (await ctx.client.ask(capital_question=question))["capital_question"]["content"]["text"]
    ctx.client.text(said)
    return said


@fixture()
async def test_input_required_result_list_roots(ctx) -> str:
    """Ask for roots."""
    roots = (await ctx.client.ask(client_roots=ctx.client.roots()))["client_roots"]["roots"]
    said = ", ".join(root["uri"] for root in roots)
    ctx.client.text(said)
    return said


CONFIRM = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}


@fixture()
async def test_input_required_result_request_state(ctx) -> str:
    """Ask, with a state."""
    await ctx.client.ask(confirm=ctx.client.elicitation("Please confirm", CONFIRM))
    ctx.client.text("state-ok")
    return "state-ok"


@fixture()
async def test_input_required_result_tampered_state(ctx) -> str:
    """Ask, with a state that is guarded."""
    await ctx.client.ask(confirm=ctx.client.elicitation("Please confirm", CONFIRM))
    return "state-ok"


@fixture()
async def test_input_required_result_multiple_inputs(ctx) -> str:
    """Ask three questions at once."""
    answers = await ctx.client.ask(
        user_name=ctx.client.elicitation("What is your name?", NAME),
        greeting=ctx.client.sampling("Generate a greeting", 50),
        client_roots=ctx.client.roots(),
    )
    ctx.client.text(json.dumps({name: dict(answer) for name, answer in answers.items()}))
    return "done"


@fixture()
async def test_input_required_result_multi_round(ctx) -> str:
    """Ask twice."""
    first = await ctx.client.ask(step1=ctx.client.elicitation("Step 1: What is your name?", NAME))
    color = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
    second = await ctx.client.ask(step2=ctx.client.elicitation("Step 2: What is your favorite color?", color))
    said = f"{first['step1']['content']['name']} likes {second['step2']['content']['color']}"
    ctx.client.text(said)
    return said


@fixture()
async def test_input_required_result_capabilities(ctx) -> str:
    """Ask what the client can be asked."""
    questions = {}
    if "sampling" in ctx.client.can:
        questions["sample"] = ctx.client.sampling("Hello", 10)
    if "elicitation" in ctx.client.can:
        questions["user"] = ctx.client.elicitation("Your name?", NAME)
    await ctx.client.ask(**questions)
    return "done"


# Tasks


@fixture()
def greet(name: str, ctx) -> str:
    """Greet.

    Args:
        name: Whom.
    """
    ctx.client.text(f"Hello, {name}!")
    return f"Hello, {name}!"


@fixture()
async def slow_compute(ctx, seconds: float = 1, label: str = "") -> str:
    """Take a while.

    Args:
        seconds: How long.
        label: What for.
    """
    ctx.client.defer()
    await asyncio.sleep(seconds)
    ctx.client.text(f"computed {label}")
    return f"computed {label}"


@fixture()
async def failing_job(ctx) -> str:
    """Fail after a while."""
    ctx.client.defer()
    await asyncio.sleep(1)
    raise ToolError("PERMANENT", "The job failed.")


@fixture()
async def protocol_error_job(ctx) -> str:
    """Break."""
    ctx.client.defer()
    await asyncio.sleep(0.1)
    raise RuntimeError("broken on purpose")


@fixture()
async def confirm_delete(ctx, filename: str = "file.txt") -> str:
    """Ask in a task.

    Args:
        filename: What is deleted.
    """
    ctx.client.defer()
    answer = (await ctx.client.ask(confirm=ctx.client.elicitation(f"Delete {filename}?", CONFIRM)))["confirm"]
    ctx.client.text(f"{answer['action']} {filename}")
    return answer["action"]


@fixture()
async def multi_input(ctx) -> str:
    """Ask twice at once in a task."""
    ctx.client.defer()
    answers = await ctx.client.ask(
        first=ctx.client.elicitation("First?", NAME), second=ctx.client.elicitation("Second?", NAME)
    )
    ctx.client.text(", ".join(sorted(answers)))
    return "done"


@fixture()
async def test_tool_with_task(ctx) -> str:
    """Ask, then continue as a task."""
    answer = (await ctx.client.ask(user_name=ctx.client.elicitation("What is your name?", NAME)))["user_name"]
    ctx.client.defer()
    await asyncio.sleep(0.2)
    said = f"Hello, {answer['content']['name']}!"
    ctx.client.text(said)
    return said


# Resources


@fixture()
def static_text(ctx) -> str:
    """A text that never changes."""
    ctx.client.text("This is the content of the static text resource.")
    return "done"


@fixture()
def static_binary(ctx) -> str:
    """A picture that never changes."""
    ctx.client.image(PNG, "image/png")
    return "done"


@fixture()
def watched_resource(ctx) -> str:
    """A text that may be watched."""
    ctx.client.text("Watched.")
    return "done"


@fixture()
def template_data(id: str, ctx) -> str:
    """Data under an id.

    Args:
        id: Which.
    """
    body = json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"}, separators=(",", ":"))
    ctx.client.resource("test://template", body, "application/json")
    return "done"


# Prompts


@fixture()
def test_simple_prompt(ctx) -> str:
    """A simple prompt."""
    ctx.client.text("This is a simple prompt for testing.")
    return "done"


@fixture()
def test_prompt_with_arguments(arg1: str, arg2: str, ctx, style: Literal["short", "long"] = "short") -> str:  # noqa: PT028
    """A prompt with arguments.

    Args:
        arg1: The first.
        arg2: The second.
        style: How long.
    """
    ctx.client.text(f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'")
    return "done"


@fixture()
def test_prompt_with_embedded_resource(resourceUri: str, ctx) -> str:  # noqa: N803
    """A prompt with a document.

    Args:
        resourceUri: Its address.
    """
    ctx.client.resource(resourceUri, "Embedded resource content for testing.")
    ctx.client.text("Please process the embedded resource above.")
    return "done"


@fixture()
def test_prompt_with_image(ctx) -> str:
    """A prompt with a picture."""
    ctx.client.image(PNG, "image/png")
    ctx.client.text("Please analyze the image above.")
    return "done"


@fixture()
async def test_input_required_result_prompt(ctx) -> str:
    """A prompt that asks first."""
    schema = {"type": "object", "properties": {"context": {"type": "string"}}, "required": ["context"]}
    question = ctx.client.elicitation("What context should the prompt use?", schema)
    answer = (await ctx.client.ask(user_context=question))["user_context"]
    ctx.client.text(f"Use this context: {answer['content']['context']}")
    return "done"
