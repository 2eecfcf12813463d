"""The name of a model chooses its client; what is missing for it is said in one sentence."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from handrail.cli import main
from handrail.clients import open_model, whats_missing
from handrail.contract.errors import ConfigError
from handrail.providers import provider_names
from handrail.providers.catalogue import own_providers
from handrail.settings import Settings, load_settings
from handrail.text_model import model_provider
from handrail.text_model import open_model as open_from_settings

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = {
    scheme: provider.client
    for provider in own_providers().values()
    for scheme in provider.schemes
    if not provider.client.is_live
}


@pytest.mark.parametrize(
    ("spec", "provider", "variable"),
    [
        ("openai:gpt-x", "openai-chat", "OPENAI_API_KEY"),
        ("openai-chat:gpt-x", "openai-chat", "OPENAI_API_KEY"),
        ("openai-responses:gpt-x", "openai-responses", "OPENAI_API_KEY"),
        ("anthropic:claude-x", "anthropic", "ANTHROPIC_API_KEY"),
        ("gemini:gemini-x", "gemini", "GEMINI_API_KEY"),
        ("gemini:gemini-x", "gemini", "GOOGLE_API_KEY"),
        ("ollama:llama3:8b", "ollama", None),
    ],
)
async def test_a_name_chooses_provider_and_model(spec, provider, variable):
    environment = {variable: "k"} if variable else {}
    assert whats_missing(spec, environment=environment) is None
    model = open_model(spec, environment=environment)

    assert (model.provider, model.name) == (provider, spec.split(":", 1)[1])
    assert model.id_scope == ("message" if provider == "ollama" else "session")
    await model.close()


@pytest.mark.parametrize(
    ("spec", "base_url", "scope"),
    [
        ("openai:m", "https://api.openai.com/v1", "session"),
        ("openai-responses:m", "https://eu.api.openai.com/v1/", "session"),
        ("anthropic:m", "https://api.anthropic.com", "session"),
        ("gemini:m", "https://generativelanguage.googleapis.com", "session"),
        ("openai:m", "http://127.0.0.1:8000/v1", "message"),
        ("openai:m", "https://api.openai.com.example/v1", "message"),
        ("openai:m", "https://notapi.openai.com/v1", "message"),
        ("openai:m", "https://api.anthropic.com/v1", "message"),
        ("openai-responses:m", "https://gateway.example/api.openai.com", "message"),
        ("anthropic:m", "https://proxy.example", "message"),
        ("gemini:m", "http://127.0.0.1:9", "message"),
        ("ollama:m", "https://ollama.com", "message"),
    ],
)
async def test_call_ids_count_for_the_session_only_where_the_vendor_itself_answers(spec, base_url, scope):
    keys = {name: "k" for client in CLIENTS.values() for name in client.keys}
    model = open_model(spec, environment=keys, base_url=base_url)
    assert model.id_scope == scope
    await model.close()


@pytest.mark.parametrize(
    ("spec", "environment", "base_url", "said"),
    [
        ("openai:gpt-x", {}, "", "needs a key; set OPENAI_API_KEY"),
        ("anthropic:x", {"OPENAI_API_KEY": "k"}, "", "set ANTHROPIC_API_KEY"),
        ("gemini:x", {"GEMINI_API_KEY": "  "}, "", "set GEMINI_API_KEY"),
        ("opnai:gpt-x", {}, "", 'Did you mean "openai:gpt-x"'),
        ("gpt-x", {}, "", 'write "demo", "local:PATH.gguf", or one of "openai:…"'),
        ("openai-realtime:foo", {}, "", 'name it under "model" in [voice], not in [agent]'),
        ("gemini-live:foo", {}, "", "in [voice]"),
        ("openai:", {}, "", "names no model"),
        ("gemini:../../secrets", {}, "", "names no model"),
        ("openai:a b", {}, "", "names no model"),
        ("openai:x", {"OPENAI_API_KEY": "k"}, "http://example.com/v1", 'over an open line; write "https://"'),
        ("openai:x", {"OPENAI_API_KEY": "k"}, "example.com", "is none"),
        ("openai:x", {"OPENAI_API_KEY": "k"}, "http://[::1", "is none"),
        ("openai:x", {"OPENAI_API_KEY": "k"}, "http://h:99999999/", "is none"),
        ("openai:x", {"OPENAI_BASE_URL": "http://example.com", "OPENAI_API_KEY": "k"}, "", "over an open line"),
        ("openai:x", {}, "https://example.com/v1", "needs a key"),
    ],
)
def test_what_is_missing_is_one_sentence(spec, environment, base_url, said):
    assert said in whats_missing(spec, environment=environment, base_url=base_url)
    with pytest.raises(ConfigError) as caught:
        open_model(spec, environment=environment, base_url=base_url)
    assert str(caught.value) == whats_missing(spec, environment=environment, base_url=base_url)


def test_a_missing_extra_says_what_to_install(monkeypatch):
    monkeypatch.setattr("handrail.providers.client_requirements.find_spec", lambda name: None)
    said = whats_missing("anthropic:x", environment={"ANTHROPIC_API_KEY": "k"})
    command = '`pip install "handrail[anthropic]"` (from a copy as docs/install.md says)'
    assert said == f'The model "anthropic:x" needs the extra "anthropic"; run {command}.'


@pytest.mark.parametrize(
    ("spec", "found", "said"),
    [
        ("openai:x", "1.99.9", "openai 3.49 or later but before 4, and 1.99.9 is installed"),
        ("openai-responses:x", "3.48.12", "openai 3.49 or later but before 4, and 3.48.12 is installed"),
        ("anthropic:x", "0.80.0", "anthropic 2.8 or later, and 0.80.0 is installed"),
        ("gemini:x", "4.0.0rc1", "google-genai 3.1 or later but before 4, and 4.0.0rc1 is installed"),
        ("gemini:x", "2.9", "google-genai 3.1 or later but before 4, and 2.9 is installed"),
        ("ollama:x", "2.3", "httpx2 2.16 or later, and 2.3 is installed"),
    ],
)
def test_an_sdk_of_another_version_is_named(monkeypatch, spec, found, said):
    monkeypatch.setattr("handrail.providers.client_requirements.version", lambda name: found)
    environment = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "GEMINI_API_KEY": "k"}
    extra = "openai" if spec.startswith("openai") else spec.partition(":")[0]
    wanted = (
        f'The model "{spec}" needs {said}; run `pip install "handrail[{extra}]"` (from a copy as docs/install.md says).'
    )
    assert whats_missing(spec, environment=environment) == wanted


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_the_versions_that_are_asked_for_are_those_of_the_extra(client):
    page = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    first, beyond = client.versions
    wanted = f">={first}" + (f",<{beyond}" if beyond else "")
    lines = page["project"]["optional-dependencies"][client.extra]
    assert wanted in [
        re.sub(r"^[a-z0-9-]+(\[\w+\])?", "", line) for line in lines if line.startswith(client.distribution)
    ]


@pytest.mark.parametrize("gone", ["_build_request", "_async_request"])
def test_a_google_sdk_without_the_parts_that_are_reached_is_one_sentence(monkeypatch, gone):
    from google.genai._api_client import BaseApiClient

    monkeypatch.delattr(BaseApiClient, gone)
    with pytest.raises(ConfigError, match=f'has no "{gone}", which the client needs; install 3.x'):
        open_model("gemini:x", environment={"GEMINI_API_KEY": "k"})


async def test_a_server_on_this_machine_needs_no_key():
    for base_url in ("http://127.0.0.1:8000/v1", "http://localhost:8000/v1", "http://[::1]:8000/v1"):
        assert whats_missing("openai:x", environment={}, base_url=base_url) is None
    await open_model("openai:x", environment={}, base_url="http://127.0.0.1:9/v1").close()


def test_the_host_of_ollama_may_be_named_as_ollama_names_it():
    assert whats_missing("ollama:x", environment={"OLLAMA_HOST": "192.168.0.7"}) is None
    assert whats_missing("ollama:x", environment={"OLLAMA_HOST": "192.168.0.7:11434"}) is None


def test_the_demo_model_answers_by_default_and_a_wrong_name_is_refused(tmp_path):
    assert open_from_settings(Settings(project=tmp_path)).name
    with pytest.raises(ConfigError, match='write "demo"'):
        open_from_settings(Settings(project=tmp_path, agent_model="nobody"))


def test_no_sdk_is_imported_before_its_model_is_opened():
    code = (
        "import sys, handrail, handrail.app, handrail.clients; "
        "print([name for name in ('openai', 'anthropic', 'google.genai', 'httpx2') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for client in CLIENTS.values():
        for name in (*client.keys, client.address_variable):
            monkeypatch.delenv(name, raising=False)
    (tmp_path / "handrail.toml").write_text('[agent]\nmodel = "openai:gpt-x"\n', "utf-8")
    return tmp_path


def diagnosis(capsys):
    """What the doctor says of the model."""
    main(["doctor", "--json"])
    (check,) = [check for check in json.loads(capsys.readouterr().out) if check["name"] == "model"]
    return check["ok"], check["message"]


@pytest.mark.parametrize("kind", CLIENTS)
def test_the_doctor_says_what_is_missing_for_the_model(project, monkeypatch, capsys, kind):
    client = CLIENTS[kind]
    (project / "handrail.toml").write_text(f'[agent]\nmodel = "{kind}:m"\n', "utf-8")
    if client.needs_key:
        without = f'The model "{kind}:m" needs a key; set {client.keys[0]} in the environment.'
        assert diagnosis(capsys) == (False, without)
    monkeypatch.setenv(client.keys[0], "k")
    if client.needs_key:
        assert diagnosis(capsys) == (True, f'"{kind}:m" has what it needs; whether it answers was not tried')

    monkeypatch.setenv(client.address_variable, "http://127.0.0.1:9")
    ok, said = diagnosis(capsys)
    assert not ok
    assert re.search("nobody (listens|answers) at http://127.0.0.1:9", said)

    monkeypatch.setenv(client.address_variable, "http://example.com")
    ok, said = diagnosis(capsys)
    assert not ok
    assert "over an open line" in said

    monkeypatch.setattr("handrail.providers.client_requirements.find_spec", lambda name: None)
    ok, said = diagnosis(capsys)
    assert not ok
    assert f'pip install "handrail[{client.extra}]"' in said


def test_the_tools_format_of_a_model_is_known_without_a_key(project):
    assert model_provider(load_settings(project, {})) == "openai-chat"
    assert model_provider(Settings(project=project)) in provider_names()


def test_the_example_in_the_documentation_runs():
    page = (ROOT / "docs" / "providers.md").read_text("utf-8")
    blocks = [block.split("```")[0] for block in page.split("```python\n")[1:]]
    (program,) = [block for block in blocks if "handrail.testing.servers" in block]
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "find_table" in done.stdout
