"""Without an extra, what needs it says one sentence that names the extra, and everything else works.

The packages are installed here, so a subprocess is kept from importing them; tests/install/test_wheels.py does the same with
an environment that really lacks them.
"""

import json
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import pytest

from handrail.cli import extras

SERVER = ("starlette", "uvicorn", "websockets", "anyio", "h11", "click")
EXTRAS = (
    *SERVER,
    *(
        "cel",
        "anthropic",
        "google.genai",
        "openai",
        "httpx2",
        "opentelemetry",
        "pocketsphinx",
        "numpy",
        "threadpoolctl",
    ),
    *("babel", "dateutil", "email_validator", "icalendar", "phonenumbers", "PIL", "pydantic"),
)
CONDITION = 'session.plan == "pro"'


def needs(feature, extra):
    return f'{feature} needs the extra "{extra}"; run `pip install "handrail[{extra}]"` (from a copy as docs/install.md says).'


SENTENCE = needs(f'The condition "{CONDITION}"', "conditions")


def without(modules, program, *arguments, folder):
    """Run a program that cannot import these modules."""
    blocked = f"import sys\nfor name in {modules!r}: sys.modules[name] = None\n"
    return subprocess.run(
        [sys.executable, "-c", blocked + program, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def handrail(modules, *arguments, folder):
    return without(modules, "from handrail.cli import main\nsys.exit(main())", *arguments, folder=folder)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("without extras")
    program = """
from handrail.cli import main
import os
assert main(["init", "demo"]) == 0
os.chdir("demo")
assert main(["new", "lookup_order"]) == 0
assert main(["build"]) == 0
"""
    done = without(EXTRAS, program, folder=folder)
    assert done.returncode == 0, done.stderr
    return folder / "demo"


@pytest.fixture
def project(made, tmp_path):
    """A project with one built tool, made without any extra."""
    return shutil.copytree(made, tmp_path / "demo")


@pytest.fixture
def conditional(project):
    """A project whose tool has a condition."""
    path = project / "tools" / "lookup-order" / "schema.json"
    schema = json.loads(path.read_text())
    path.write_text(json.dumps({**schema, "availability": {"condition": CONDITION}}))
    return project


def test_the_core_builds_and_calls_without_any_extra(project):
    called = handrail(EXTRAS, "call", "lookup_order", "--args", '{"id": "A-1001"}', folder=project)
    assert json.loads(called.stdout)["data"]["record"]["status"] == "shipped"


@pytest.mark.parametrize("package", ["starlette", "uvicorn", "websockets"])
def test_serving_without_the_web_framework_names_the_extra(project, package):
    done = handrail((package,), "serve", folder=project)
    assert done.returncode == 2
    assert done.stderr == f"handrail serve: {needs('`handrail serve`', 'server')}\n"


def test_the_build_names_the_extra_of_a_condition(conditional):
    done = handrail(("cel",), "build", folder=conditional)
    assert done.returncode == 1
    assert f"lookup-order/schema.json:/availability/condition\n    {SENTENCE}" in done.stderr


PROGRAM = """
import asyncio
from handrail import Registry, Runtime

async def main():
    registry = Registry.load("tool_registry.json")
    registry.lock()
    async with Runtime(registry, store="memory:"):
        print("opened")

try:
    asyncio.run(main())
except Exception as error:
    print(type(error).__name__, error)
"""


def test_a_runtime_refuses_to_open_without_the_extra_of_a_condition(conditional):
    assert handrail((), "build", folder=conditional).returncode == 0
    assert without((), PROGRAM, folder=conditional).stdout == "opened\n"
    done = without(("cel",), PROGRAM, folder=conditional)
    assert done.stdout == f"ConfigError {needs('A tool with a condition', 'conditions')}\n"


@pytest.mark.parametrize(
    ("extra", "package", "setting", "check"),
    [
        ("openai", "openai", '[agent]\nmodel = "openai:m"', "model"),
        ("gemini", "google.genai", '[voice]\nmodel = "gemini-live:m"', "voice"),
        ("local", "xllamacpp", '[agent]\nmodel = "local:model.gguf"', "model"),
        ("speech", "pocketsphinx", '[voice]\nrecogniser = "local"', "voice"),
    ],
)
def test_doctor_names_the_extra_of_a_model(project, extra, package, setting, check):
    with (project / "handrail.toml").open("a") as file:
        file.write(f"\n{setting}\n")
    done = handrail((package,), "doctor", "--json", folder=project)
    assert done.returncode == 1, done.stderr
    found = {one["name"]: one for one in json.loads(done.stdout)}[check]
    assert not found["ok"]
    assert found["message"].endswith(needs("", extra))


@pytest.mark.parametrize(
    ("package", "lost", "kept"),
    [
        ("numpy", {"embeddings"}, {"reference", "openai"}),
        ("handrail-reference", {"embeddings", "reference"}, {"openai"}),
        ("websockets", {"gemini", "openai", "server"}, {"embeddings"}),
    ],
)
def test_an_extra_is_installed_only_with_all_that_its_packages_need(monkeypatch, package, lost, kept):
    """`embeddings` is an extra of another package of ours, and `openai` needs one of its SDK's."""
    before = {extra for extra, there in extras.installed_extras().items() if there}
    assert lost | kept <= before

    def version(name):
        if name == package:
            raise PackageNotFoundError(name)
        return "1"

    monkeypatch.setattr(extras, "version", version)
    assert {extra for extra, there in extras.installed_extras().items() if there} == before - lost


def test_doctor_and_forgetting_a_user_do_without_the_web_framework(project):
    done = handrail(SERVER, "doctor", "--json", folder=project)
    assert done.returncode == 0, done.stdout + done.stderr
    extras = next(check["message"] for check in json.loads(done.stdout) if check["name"] == "extras")
    assert {"conditions", "server"} <= set(extras.split(", "))
    done = handrail(SERVER, "users", "forget", "u1", "--yes", folder=project)
    assert done.returncode == 0, done.stderr
