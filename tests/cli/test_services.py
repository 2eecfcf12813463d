"""Services at the command line: `new --service` writes one, `doctor` tries it, and `call` opens it."""

import json
import os
import subprocess
import sys

import pytest

TOOL = """
async def execute(args, ctx):
    return {"ok": True, "data": {"status": await ctx.SERVICE.status_of(args["id"])}}
"""


@pytest.fixture
def shop(project, handrail, request):
    """A project with a service of the test's own name, because a process has one module of a name."""
    name = "shop_" + "".join(one for one in request.node.name if one.isalnum())[-40:].lower()
    said = handrail("new", "--service", name)
    assert said.code == 0, said
    return name


def checks(handrail):
    return {check["name"]: check for check in json.loads(handrail("doctor", "--json").out)}


def test_a_new_service_is_whole(shop, project, handrail):
    assert handrail("new", "--service", shop).code == 2
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        # The plugins of this environment take long to load, and are none of an author's.
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert done.returncode == 0, done.stdout
    assert checks(handrail)[f"service {shop}"] == {"name": f"service {shop}", "ok": True, "message": "1 records"}


def test_a_tool_reaches_a_new_service(shop, project, handrail):
    assert handrail("new", "ask").code == 0
    folder = project / "tools" / "ask"
    schema = json.loads((folder / "schema.json").read_text())
    del schema["outputSchema"]
    (folder / "schema.json").write_text(json.dumps({**schema, "capabilities": [shop]}))
    (folder / "handler.py").write_text(TOOL.replace("SERVICE", shop))
    guide = (folder / "guide.md").read_text()
    (folder / "guide.md").write_text(guide.partition("Response:")[0])
    assert handrail("build").code == 0
    said = handrail("call", "ask", "--args", '{"id": "A-1001"}')
    assert json.loads(said.out)["data"] == {"status": "shipped"}, said
    assert (project / f"{shop}.db").is_file()


def break_service(project, shop, source):
    (project / "services" / f"{shop}.py").write_text(source)


def test_doctor_names_a_service_that_cannot_be_opened_and_one_whose_check_fails(shop, project, handrail):
    break_service(project, shop, f"def open_{shop}(path): raise OSError('no such host')")
    assert (
        checks(handrail)[f"service {shop}"]["message"]
        == f'The service "{shop}" could not be opened: OSError: no such host.'
    )


def test_doctor_reports_a_check_that_fails(shop, project, handrail):
    source = f"class Shop:\n    def check(self): raise RuntimeError('no table')\ndef open_{shop}(path): return Shop()\n"
    break_service(project, shop, source)
    found = checks(handrail)[f"service {shop}"]
    assert (found["ok"], found["message"]) == (
        False,
        f'the check of the service "{shop}" failed: RuntimeError: no table',
    )


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            "class Shop:\n    def close(self): raise OSError('the socket is gone')\ndef open_SHOP(path): return Shop()\n",
            'The service "SHOP" failed to close: OSError: the socket is gone.',
        ),
        (
            "def open_SHOP(path): object()\n",
            'The service "SHOP" could not be opened: its factory gave None; '
            "let it return or yield what tools reach as ctx.SHOP.",
        ),
    ],
    ids=["close-raises", "returns-none"],
)
def test_doctor_reports_a_service_that_opens_and_is_still_wrong(shop, project, handrail, source, reason):
    break_service(project, shop, source.replace("SHOP", shop))
    found = checks(handrail)[f"service {shop}"]
    assert (found["ok"], found["message"]) == (False, reason.replace("SHOP", shop))


def test_doctor_and_a_start_name_a_service_that_is_misspelt(shop, project, handrail, monkeypatch):
    module = f"tools_{shop}"
    (project / f"{module}.py").write_text(
        "from typing import Annotated\nfrom handrail import service, tool\n"
        '@tool\ndef ask(shop: Annotated[object, service("SHPO")]) -> str:\n    "Ask the shop."\n'.replace(
            "SHPO", shop.replace("shop", "shpo")
        )
    )
    monkeypatch.setenv("HANDRAIL_TOOLS_MODULES", module)
    assert handrail("build").code == 0
    wrong = shop.replace("shop", "shpo")
    sentence = (
        f'The tool "ask" needs the capability "{wrong}", which this host does not have (did you mean "{shop}"?); '
        f"[services.{wrong}] in handrail.toml supplies it, or `Runtime(capabilities=…)`."
    )
    found = checks(handrail)[f"service {wrong}"]
    assert (found["ok"], found["message"]) == (False, sentence)
    assert sentence in handrail("call", "ask").err


@pytest.mark.parametrize(
    ("factory", "code", "reason"),
    [
        (
            "nowhere_at_all:open_till",
            2,
            ": the module \"nowhere_at_all\" cannot be imported: No module named 'nowhere_at_all'.",
        ),
        ("os:getpgid", 2, None),
        ("os:abort_all", 2, ': the module "os" has no "abort_all"'),
        ("till_is_down:open_till", 1, " could not be opened: OSError: no such host."),
    ],
)
def test_a_service_that_fails_to_open_stops_a_command_with_one_sentence(built, handrail, factory, code, reason):
    (built / "till_is_down.py").write_text("def open_till(): raise OSError('no such host')")
    with (built / "handrail.toml").open("a") as file:
        file.write(f'\n[services.till]\nfactory = "{factory}"\n')
    schema = json.loads((built / "tools" / "lookup-order" / "schema.json").read_text())
    (built / "tools" / "lookup-order" / "schema.json").write_text(json.dumps({**schema, "capabilities": ["till"]}))
    assert handrail("build").code == 0
    for words in (("call", "lookup_order"), ("chat", "hello"), ("serve", "--port", "0")):
        said = handrail(*words)
        assert said.code == code, said
        assert "Traceback" not in said.err
        last = said.err.splitlines()[-1]  # before it, chat and serve say which model answers
        assert "till" in last
        assert reason is None or last.startswith(f'handrail {words[0]}: The service "till"{reason}')


@pytest.mark.parametrize("name", ["Shop", "my-shop", "", "9", "ctx.shop"])
def test_a_name_that_no_service_can_have_is_refused(project, handrail, name):
    said = handrail("new", "--service", name)
    assert said.code == 2
    assert "cannot be the name of a service" in said.err


def test_new_wants_a_tool_or_a_service(project, handrail):
    assert handrail("new").code == 2
    assert handrail("new", "a_tool", "--service", "shop").code == 2


@pytest.mark.parametrize(
    ("toml", "sentence"),
    [
        ("services = 1", "[services] in handrail.toml must hold tables"),
        ("[services]\nshop = 1", '"shop" in [services] must be a table; write [services.shop].'),
        ('[services.shop]\nfactory = "open_shop"', '"factory" in [services.shop] must be "module:function"'),
        ("[services.shop]\nfactory = 1", '"factory" in [services.shop] must be "module:function"'),
        ("[services.calender]", "did you mean [services.calendar]?"),
        ("[services.Shop]", "[services.Shop] cannot be a service; use small letters"),
        ("[services.user]", "[services.user] cannot be a service: every tool has a `ctx.user` already"),
        ("[services.secrets]", "[services.secrets] cannot be a service: every tool has a `ctx.secrets` already"),
    ],
)
def test_a_table_that_cannot_be_used_is_named(project, handrail, toml, sentence):
    (project / "handrail.toml").write_text(toml)
    said = handrail("list")
    assert said.code == 2
    assert sentence in said.err


def test_the_environment_overrides_settings_of_a_service(shop, project, handrail, monkeypatch):
    monkeypatch.setenv(f"HANDRAIL_SERVICES_{shop.upper()}_PATH", "elsewhere.db")
    assert checks(handrail)[f"service {shop}"]["ok"]
    assert (project / "elsewhere.db").is_file()
    monkeypatch.setenv("HANDRAIL_SERVICES_NOBODY_PATH", "x")
    said = handrail("list")
    assert 'The environment has "HANDRAIL_SERVICES_NOBODY_PATH", which sets no service' in said.err
