"""The provider that docs/providers.md adds: a folder and one line, then a build and a conversation."""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.clients.kit import AgentCase
from tests.docs.pages import ROOT, blocks, write_files
from tests.providers.test_provider_table import LAMP
from tests.runtime.kit import PAID, Tools, writing

from handrail import Runtime, plugins
from handrail.agents import AgentPolicy, TextAgent
from handrail.cli import main
from handrail.clients import open_model, whats_missing
from handrail.contract.errors import ConfigError, UsageError
from handrail.providers import adapt, catalogue, provider_names

KEY = {"ACME_API_KEY": "k"}


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder on the path, in which the page's own files are."""

    def forget():
        plugins.entry_points_of.cache_clear()
        catalogue.own_providers.cache_clear()
        for name in [name for name in sys.modules if name.partition(".")[0] == "acme"]:
            del sys.modules[name]

    folder = tmp_path / "site"
    write_files("providers.md", folder)
    monkeypatch.syspath_prepend(str(folder))
    forget()
    yield folder
    monkeypatch.undo()
    forget()


def declare(site, points, package="acme"):
    facts = site / f"{package}-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", "utf-8")
    (facts / "entry_points.txt").write_text(f"[handrail.providers]\n{points}\n", "utf-8")
    plugins.entry_points_of.cache_clear()


def by_entry_point(site, monkeypatch):
    (line,) = [
        line
        for block in blocks(ROOT / "docs" / "providers.md")
        for line in block.text.splitlines()
        if block.language == "toml" and line.startswith("acme")
    ]
    declare(site, line.replace('"', ""))


def by_the_list(site, monkeypatch):
    monkeypatch.setattr(catalogue, "REGISTRATIONS", (*catalogue.REGISTRATIONS, "acme:ACME"))
    catalogue.own_providers.cache_clear()


@pytest.fixture
def acme():
    """A server of Acme's API: pays the rent, then says so."""
    asked = []
    answers = [
        [{"text": "One moment. "}, {"call": {"id": "c1", "tool": "pay", "args": {"q": "rent"}}}, {"end": "stop"}],
        [{"text": "The rent "}, {"text": "is paid."}, {"end": "stop"}],
    ]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            asked.append((self.path, self.headers["authorization"], body))
            sent = "".join(json.dumps(line) + "\n" for line in answers[len(asked) - 1]).encode()
            self.send_response(200)
            self.send_header("content-type", "application/x-ndjson")
            self.send_header("content-length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        serving.join()


@pytest.mark.parametrize("register", [by_entry_point, by_the_list])
async def test_a_folder_and_a_line_make_a_ninth_provider(register, site, acme, tmp_path, monkeypatch):
    register(site, monkeypatch)
    address, asked = acme
    tools = Tools(tmp_path)
    tools.write({"pay": (writing(), PAID)})
    registry = tools.build()

    assert len(provider_names()) == 9
    (schema,) = registry.provider_schemas("acme")
    assert schema["tool"] == "pay"
    assert schema["arguments"]["type"] == "object"

    model = open_model("acme:large", environment=KEY, base_url=address)
    assert (model.provider, model.name, model.id_scope) == ("acme", "large", "message")
    async with Runtime(registry, store="memory:") as runtime:
        agent = TextAgent(runtime, model, policy=AgentPolicy(guide_tokens=0))
        said = await AgentCase(agent, await runtime.open_session(user="u1")).say("Pay the rent.")
    await model.close()

    assert said.endswith("The rent is paid.")
    assert tools.started() == [{"q": "rent"}]
    assert [(path, key) for path, key, _ in asked] == [("/chat", "Bearer k")] * 2
    assert "pay" in [tool["tool"] for tool in asked[0][2]["tools"]]
    turns = asked[1][2]["turns"]
    assert [turn["from"] for turn in turns] == ["user", "model", "tool"]
    assert turns[2]["id"] == "c1"
    assert turns[2]["envelope"]["ok"] is True


def test_the_command_line_knows_it_too(site, tmp_path, monkeypatch, capsys):
    by_entry_point(site, monkeypatch)
    monkeypatch.chdir(tmp_path)
    tools = Tools(tmp_path)
    tools.write({"pay": (writing(), PAID)})
    (tmp_path / "handrail.toml").write_text('[agent]\nmodel = "acme:large"\n', "utf-8")
    assert main(["build"]) == 0
    assert main(["show", "pay", "--provider", "acme"]) == 0
    assert '"tool": "pay"' in capsys.readouterr().out

    monkeypatch.delenv("ACME_API_KEY", raising=False)
    main(["doctor", "--json"])
    (check,) = [one for one in json.loads(capsys.readouterr().out) if one["name"] == "model"]
    assert check["message"] == 'The model "acme:large" needs a key; set ACME_API_KEY in the environment.'


def test_its_limits_are_those_of_its_registration(site, monkeypatch):
    by_entry_point(site, monkeypatch)
    acme = catalogue.get_provider("acme")
    assert list(acme.exceeded_limits([{}] * 50)) == []
    assert list(acme.exceeded_limits([{}] * 51)) == ["takes at most 50 tools in one request; these are 51"]


def test_a_package_that_is_missing_is_named_as_it_is_installed(site, monkeypatch):
    by_entry_point(site, monkeypatch)
    monkeypatch.setattr("handrail.providers.client_requirements.find_spec", lambda name: None)
    said = whats_missing("acme:large", environment=KEY)
    assert said == 'The model "acme:large" needs the package "httpx2"; run `pip install httpx2`.'


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ("acme = acme:NOBODY", "has no attribute 'NOBODY'"),
        ("acme = acme.adapter:adapt", 'must be a `Provider` with the name "acme"'),
        ("other = acme:ACME", 'must be a `Provider` with the name "other"'),
        ("acme = nowhere_at_all:ACME", "No module named 'nowhere_at_all'"),
    ],
)
def test_a_broken_registration_breaks_only_what_uses_it(site, points, said):
    declare(site, points)
    name = points.partition(" ")[0]
    with pytest.raises(ConfigError, match='"acme"') as caught:
        adapt(LAMP, name)
    assert said in str(caught.value)
    assert adapt(LAMP, "gemini").schema["name"] == LAMP.tool_id
    assert whats_missing("ollama:x", environment={}) is None


def test_no_package_takes_the_name_of_a_provider_of_handrails_own(site):
    declare(site, "gemini = acme:ACME")
    assert len(provider_names()) == 8
    assert adapt(LAMP, "gemini").schema["name"] == LAMP.tool_id


def test_an_unknown_name_is_still_a_sentence_with_all_names(site, monkeypatch):
    by_entry_point(site, monkeypatch)
    with pytest.raises(
        UsageError, match=r'There is no provider "amce"; there is openai-chat, .*, mcp, acme\. Did you mean "acme"'
    ):
        adapt(LAMP, "amce")
