"""Local models on the real engine, with a tiny model whose weights are random: what it says is nonsense, what it does is real."""

import asyncio
import os
import signal
import sys
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
from tests.clients.tiny_gguf import write_tiny_gguf
from tests.runtime.kit import FOUND, Tools, reading

from handrail import Runtime
from handrail.agents import Conversation, TextAgent
from handrail.cli import main
from handrail.contract.errors import ConfigError
from handrail.contract.model import CallMade, Finished, ModelError, ModelRequest, TextDelta, Usage, UserMessage
from handrail.providers.local import local_problem, open_local
from handrail.providers.streaming_model import ClientLimits
from handrail.schema.validator import compile_schema
from handrail.settings import Settings
from handrail.text_model import choose_working_model, open_model

PICK = {
    "type": "function",
    "function": {
        "name": "pick",
        "description": "Picks a colour.",
        "parameters": {
            "type": "object",
            "properties": {
                "colour": {"enum": ["red", "green"]},
                "count": {"type": "integer", "minimum": 1, "maximum": 9},
            },
            "required": ["colour", "count"],
            "additionalProperties": False,
        },
    },
}
SESSION = {"now": "2026-11-17T10:00:00+01:00"}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    """Without the engine the tests are skipped with a reason, and on CI they fail."""
    try:
        import xllamacpp  # noqa: F401
    except ImportError as error:
        reason = f"The engine of local models cannot be loaded ({error}); `make engine` brings what it needs."
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return write_tiny_gguf(tmp_path_factory.mktemp("models") / "tiny.gguf")


@asynccontextmanager
async def opened(path: Path):
    model = open_local(path)
    try:
        yield model
    finally:
        pid = model.engine.pid
        await model.close()
        assert pid is None or not is_running(pid)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def request(text: str = "hello", *, tools=(), **more) -> ModelRequest:
    return ModelRequest(system="", messages=[UserMessage(text)], tools=tools, session=SESSION, **more)


async def asked(model, wanted: ModelRequest):
    return [event async for event in model.stream(wanted)]


async def test_random_weights_too_write_what_the_schema_allows_and_nothing_else(tiny):
    check = compile_schema(PICK["function"]["parameters"])
    async with opened(tiny) as model:
        calls = 0
        for number in range(6):
            events = await asked(model, request(f"message {number}", tools=[PICK], max_output_tokens=120))
            assert isinstance(events[-1], Finished)
            for event in events:
                if isinstance(event, CallMade):
                    calls += 1
                    assert event.call.name == "pick"
                    assert check.is_valid(event.call.args)
                    assert events[-1].reason == "calls"
        assert calls, "none of the answers was a call"


async def test_what_is_said_is_streamed_and_counted(tiny):
    async with opened(tiny) as model:
        events = await asked(model, request(max_output_tokens=40))
        pieces = [event.text for event in events if isinstance(event, TextDelta)]
        assert len(pieces) > 5
        (usage,) = [event for event in events if isinstance(event, Usage)]
        assert usage.output_tokens == 40
        assert usage.input_tokens > 10
        assert events[-1] == Finished("length")


async def test_an_answer_that_is_cut_makes_no_call(tiny):
    async with opened(tiny) as model:
        events = await asked(model, request(tools=[PICK], max_output_tokens=4))
        assert [type(event) for event in events if not isinstance(event, TextDelta)] == [Usage, Finished]
        assert events[-1].reason == "length"


async def test_an_answer_can_be_broken_off_and_the_next_one_comes(tiny):
    async with opened(tiny) as model:
        async with aclosing(model.stream(request("a long story"))) as stream:
            async for event in stream:
                assert isinstance(event, TextDelta)
                break
        pid = model.engine.pid
        assert pid is not None
        events = await asked(model, request("another", max_output_tokens=10))
        assert events[-1] == Finished("length")
        assert model.engine.pid == pid, "the model was not loaded again"


async def test_the_child_stops_writing_what_nobody_wants_any_more(tiny):
    async with opened(tiny) as model:
        body = {"messages": [{"role": "user", "content": "a long story"}], "temperature": 0, "max_tokens": 3_500}
        for _ in range(10):  # it is quick; on a busy machine it may be through before it is told
            async with aclosing(model.engine.generate(body)) as messages:
                async for message in messages:
                    if "text" in message:
                        break
            await asked(model, request(max_output_tokens=4))
            if model.engine.figures.cancelled:
                break
        assert model.engine.figures.cancelled == 1


async def test_requests_of_several_sessions_wait_for_each_other(tiny):
    async with opened(tiny) as model:
        many = await asyncio.gather(*(asked(model, request(f"m{number}", max_output_tokens=8)) for number in range(5)))
        assert all(events[-1] == Finished("length") for events in many)
        assert model.engine.figures.starts == 1


async def test_a_child_that_dies_is_an_error_that_may_pass_and_is_started_again(tiny):
    async with opened(tiny) as model:
        stream = model.stream(request("a long story"))
        await anext(stream)
        os.kill(model.engine.pid, signal.SIGKILL)
        with pytest.raises(ModelError) as caught:
            async for _ in stream:
                pass
        assert caught.value.retryable
        assert str(caught.value) == "The local model ended unexpectedly."
        assert "code -9" in caught.value.detail
        events = await asked(model, request(max_output_tokens=8))
        assert events[-1] == Finished("length")
        assert model.engine.figures.starts == 2


async def test_a_child_that_falls_silent_is_stopped(tiny):
    model = open_local(tiny, limits=ClientLimits(idle_seconds=1.0))
    try:
        await model.load()
        stream = model.stream(request("a long story"))
        await anext(stream)
        os.kill(model.engine.pid, signal.SIGSTOP)
        with pytest.raises(ModelError, match="did not answer in time"):
            async for _ in stream:
                pass
        assert model.engine.pid is None
    finally:
        await model.close()


async def test_the_child_ends_with_a_parent_that_is_killed(tiny, tmp_path):
    program = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from handrail.providers.local import open_local\n"
        "async def run():\n"
        "    model = open_local(Path(sys.argv[1]))\n"
        "    await model.load()\n"
        "    print(model.engine.pid, flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(run())\n"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(tiny), stdout=asyncio.subprocess.PIPE
    )
    child = int(await parent.stdout.readline())
    assert is_running(child)
    parent.kill()
    await parent.wait()
    for _ in range(200):
        # Where nobody collects it, it stays as a zombie, which runs nothing.
        if not is_running(child) or Path(f"/proc/{child}/stat").read_text("ascii").split()[2] == "Z":
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the child is still there")


async def test_its_memory_and_speed_are_told(tiny):
    async with opened(tiny) as model:
        await model.load()
        assert "tiny.gguf was loaded in" in model.summary
        assert "MB of memory and writes" in model.summary
        figures = model.figures()
        assert figures["memoryBytes"] > 1_000_000
        assert figures["tokensPerSecond"] > 0
        text = model.to_prometheus()
        assert "# TYPE handrail_local_model_memory_bytes gauge" in text
        assert "handrail_local_model_starts_total 1\n" in text
        await model.unload()
        assert model.figures()["memoryBytes"] == 0
        assert (await asked(model, request(max_output_tokens=4)))[-1] == Finished("length")


async def test_no_port_is_opened(tiny):
    async with opened(tiny) as model:
        await model.load()
        sockets = {str(fd.readlink()) for fd in Path(f"/proc/{model.engine.pid}/fd").iterdir() if fd.is_symlink()}
        inodes = {one.removeprefix("socket:[").removesuffix("]") for one in sockets if one.startswith("socket:")}
        listening = Path("/proc/net/tcp").read_text("ascii") + Path("/proc/net/tcp6").read_text("ascii")
        assert not inodes & {
            line.split()[9] for line in listening.splitlines() if ":" in line and line.split()[3] == "0A"
        }


async def test_the_same_loop_and_the_same_gates_carry_its_calls(tiny, tmp_path):
    """The agent plays whole turns on it: whatever it calls goes through the pipeline, and every turn ends."""
    tools = Tools(tmp_path)
    tools.write({"look": (reading(), FOUND)})
    async with opened(tiny) as model, Runtime(tools.build(), store="memory:") as runtime:
        agent = TextAgent(runtime, model)
        session = await runtime.open_session()
        conversation = Conversation()
        events = [event async for event in agent.run(session, conversation, "Look for tea.", message_id="m1")]
        await session.close()
    assert events[-1].type == "done"
    ended = [event.data for event in events if event.type in ("tool_finished", "tool_refused")]
    assert len(tools.started()) <= len(ended)
    assert all(event["toolId"] == "look" for event in ended)


def damaged(tiny: Path, folder: Path) -> Path:
    path = folder / "damaged.gguf"
    path.write_bytes(tiny.read_bytes()[:9_000])
    return path


def test_a_file_that_cannot_be_a_model_is_one_sentence(tiny, tmp_path, monkeypatch):
    settings = Settings(project=tmp_path, agent_model="local:model.gguf")
    with pytest.raises(ConfigError, match="There is no model file"):
        choose_working_model(settings)
    for content in (b"", b"GGUF", b"PK\3\4" + b"x" * 100, b"GGUF\3\0\0\0" + b"\xff" * 64):
        (tmp_path / "model.gguf").write_bytes(content)
        with pytest.raises(ConfigError, match=r'"model.gguf" is not a GGUF file, or it is damaged'):
            choose_working_model(settings)
    assert "is a folder" in local_problem(tmp_path)
    monkeypatch.setattr("handrail.providers.local.find_spec", lambda name: None)
    assert 'needs the extra "local"; run `pip install "handrail[local]"`' in local_problem(tiny)


async def test_a_file_that_is_damaged_further_inside_is_one_sentence_too(tiny, tmp_path):
    async with opened(damaged(tiny, tmp_path)) as model:
        with pytest.raises(ModelError, match=r'The model file "damaged.gguf" cannot be run') as caught:
            await model.load()
        assert caught.value.misconfigured
        assert "\n" not in caught.value.detail


def test_a_project_names_it_beside_its_settings(tiny, tmp_path):
    (tmp_path / "tiny.gguf").write_bytes(tiny.read_bytes())
    settings = Settings(project=tmp_path, agent_model="local:tiny.gguf")
    choice = choose_working_model(settings)
    assert choice.sentence == "Answered by local:tiny.gguf: the configuration names it."
    model = open_model(settings, choice)
    assert (model.name, model.context_window) == ("tiny.gguf", 4096)


def test_the_doctor_says_what_it_costs(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HANDRAIL_AGENT_MODEL", f"local:{tiny}")
    main(["doctor"])
    assert "tiny.gguf was loaded in" in capsys.readouterr().out
    monkeypatch.setenv("HANDRAIL_AGENT_MODEL", f"local:{damaged(tiny, tmp_path)}")
    main(["doctor"])
    assert 'FAIL  model         The model file "damaged.gguf" cannot be run' in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.skipif("HANDRAIL_TEST_GGUF" not in os.environ, reason="HANDRAIL_TEST_GGUF names no model file")
async def test_a_real_model_calls_the_tool_that_fits_and_says_what_came_of_it(record_figures):
    async with opened(Path(os.environ["HANDRAIL_TEST_GGUF"])) as model:
        await model.load()
        record_figures(model.summary)
        events = await asked(model, request("Please pick the colour green, three of them.", tools=[PICK]))
        (call,) = [event.call for event in events if isinstance(event, CallMade)]
        assert call.args == {"colour": "green", "count": 3}
        record_figures(model.figures())
