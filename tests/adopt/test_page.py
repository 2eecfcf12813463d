"""The examples of the page on adoption: each module is built and its tool is called, with the real framework."""

import re
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from handrail.testing import open_tools

PAGE = (Path(__file__).parents[2] / "docs" / "adoption.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```python (\S+)\n(.*?)^```$", PAGE, re.M | re.S))
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)


@pytest.mark.parametrize(
    ("file", "call", "data"),
    [
        ("functions.py", ("shorten", {"text": "a long text", "width": 9}), "a [...]"),
        ("langchain_tools.py", ("word_count", {"text": "a b"}), 2),
        ("pydantic_tools.py", ("word_count", {"text": "a b"}), 2),
        ("agents_tools.py", ("word_count", {"text": "a b"}), 2),
    ],
    ids=["function", "langchain", "pydantic-ai", "openai-agents"],
)
def test_the_modules_of_the_page_build_and_their_tools_answer(tmp_path, file, call, data):
    module = f"page_{file.removesuffix('.py')}"
    (tmp_path / f"{module}.py").write_text(FILES[file], encoding="utf-8")
    (tmp_path / "tools").mkdir()
    with open_tools(tmp_path / "tools", modules=(module,)) as tools:
        assert tools.call(*call).data == data


def test_the_page_shows_each_framework_in_a_file_and_a_program():
    assert set(FILES) == {"functions.py", "langchain_tools.py", "pydantic_tools.py", "agents_tools.py"}
    assert len(PROGRAMS) == 3


@asynccontextmanager
async def opened(folder, module):
    """A session on the page's function."""
    (folder / f"{module}.py").write_text(FILES["functions.py"], encoding="utf-8")
    (folder / "tools").mkdir()
    with open_tools(folder / "tools", modules=(module,)) as tools:
        async with tools.runtime() as runtime:
            yield await runtime.open_session()


def program(number, name):
    """What the page's program of this number defines."""
    names = {}
    exec(PROGRAMS[number], names)
    return names[name]


async def test_the_program_for_pydantic_ai_runs(tmp_path):
    from pydantic_ai.models.test import TestModel

    async with opened(tmp_path, "page_for_pydantic") as session:
        result = await program(1, "with_pydantic_ai")(session, TestModel(), "Shorten it.")
        assert '"ok":true' in result.output


async def test_the_program_for_langchain_binds_the_tools(tmp_path):
    class Model:
        def bind_tools(self, tools):
            return [tool.name for tool in tools]

    async with opened(tmp_path, "page_for_langchain") as session:
        assert await program(0, "with_langchain")(session, Model()) == ["shorten"]


async def test_the_program_for_openai_agents_runs(tmp_path):
    from agents import ModelResponse, Usage
    from agents.models.interface import Model
    from openai.types.responses import ResponseOutputMessage, ResponseOutputText

    class Polite(Model):
        async def get_response(self, system_instructions, input, model_settings, tools, *args, **kwargs):
            text = ResponseOutputText(text=tools[0].name, type="output_text", annotations=[])
            said = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
            return ModelResponse(output=[said], usage=Usage(), response_id=None)

        def stream_response(self, *args, **kwargs):
            raise NotImplementedError

    async with opened(tmp_path, "page_for_openai") as session:
        result = await program(2, "with_openai_agents")(session, Polite(), "Shorten it.")
        assert result.final_output == "shorten"
