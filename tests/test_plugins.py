"""Entry points: what other packages bring is found by name and imported late; a broken package is one sentence."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from handrail import plugins
from handrail.authoring import reference
from handrail.build.scaffold import new_tool
from handrail.cli import main
from handrail.contract.errors import ConfigError
from handrail.plugins import COMMANDS, MODELS, SERVICES, TOOLS, entry_points_of, load_module, load_plugin
from handrail.settings import Settings
from handrail.text_model import open_model


@pytest.fixture
def install(tmp_path, monkeypatch):
    """`install("acme", {group: {name: value}}, **modules)`: a package in this environment, until the test ends."""

    def clear():
        plugins.entry_points_of.cache_clear()
        plugins.tools_folder.cache_clear()

    def add(package, points, /, **modules):
        site = tmp_path / f"site-{package}"
        facts = site / f"{package}-1.0.dist-info"
        facts.mkdir(parents=True)
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        groups = [
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in names.items())
            for group, names in points.items()
        ]
        (facts / "entry_points.txt").write_text("\n".join(groups))
        for name, source in modules.items():
            (site / f"{name}.py").write_text(textwrap.dedent(source))
        monkeypatch.syspath_prepend(str(site))
        clear()
        return site

    yield add
    clear()


def test_a_plugin_is_found_by_its_name_and_imported_when_it_is_used(install):
    install("acme", {MODELS: {"acme": "acme_model_a:open_model"}}, acme_model_a="def open_model(): return 'a model'")
    assert "acme" in entry_points_of(MODELS)
    assert "acme_model_a" not in sys.modules
    assert load_plugin(MODELS, "acme")() == "a model"


@pytest.mark.parametrize(
    ("name", "source", "reason"),
    [
        ("acme_b", "import nowhere_at_all", "No module named 'nowhere_at_all'"),
        ("acme_c", "raise SystemExit('stop')", "stop"),
        ("acme_d", "", "has no attribute 'open_model'"),
    ],
)
def test_a_broken_plugin_is_named_with_its_package(install, name, source, reason):
    install("acme", {MODELS: {"acme": f"{name}:open_model"}}, **{name: source})
    with pytest.raises(ConfigError) as caught:
        load_plugin(MODELS, "acme")
    assert str(caught.value).startswith(f'"acme" ("{name}:open_model") of the package "acme" cannot be loaded: ')
    assert reason in str(caught.value)
    assert str(caught.value).endswith("; update or uninstall that package.")


def test_a_name_that_nobody_supplies_has_a_near_one(install):
    install("acme", {MODELS: {"acme": "acme_e:open_model"}})
    with pytest.raises(
        ConfigError, match=r'No installed package supplies "acem" in "handrail\.models"; did you mean "acme"\?'
    ):
        load_plugin(MODELS, "acem")


def test_two_packages_that_claim_one_name_are_named(install):
    install("acme", {SERVICES: {"shop": "acme_f:open_shop"}})
    install("rival", {SERVICES: {"shop": "rival:open_shop"}})
    with pytest.raises(ConfigError, match=r'Two installed packages supply "shop" in "handrail\.services"'):
        entry_points_of(SERVICES)


def test_a_group_of_modules_refuses_what_is_none(install):
    install("acme", {COMMANDS: {"acme": "acme_g:run"}}, acme_g="def run(options): return 0")
    with pytest.raises(ConfigError, match="must name a module"):
        load_module(COMMANDS, "acme")


@pytest.fixture
def acme_tools(install):
    site = install("acme", {TOOLS: {"acme": "acme_tools"}})
    new_tool(site, site / "acme_tools", "lookup_part", "retrieval")
    new_tool(site, site / "acme_tools", "format_datetime", "utility")
    return site


def ids(names):
    return [(source.origin, source.name) for source in reference.read_reference(names)]


def test_tools_of_a_package_are_taken_in_by_id(acme_tools):
    assert ids(["lookup_part"]) == [("acme", "lookup_part")]
    assert ids(["acme:lookup-part", "lookup_part"]) == [("acme", "lookup_part")]
    assert ids(["acme:*"]) == [("acme", "format_datetime"), ("acme", "lookup_part")]


def test_a_star_alone_takes_handrails_own_and_nobody_elses(acme_tools):
    assert "acme" not in {origin for origin, _ in ids(["*"])}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("format_datetime", 'which several packages have; write "'),
        ("acem:*", 'no installed package has the tools "acem"; did you mean "acme"?'),
        ("acme:lookup_prat", 'did you mean "lookup_part"?'),
    ],
)
def test_a_name_that_means_no_tool_or_several_is_refused(acme_tools, name, sentence):
    with pytest.raises(ConfigError) as caught:
        ids([name])
    assert sentence in str(caught.value)


def test_a_package_whose_tools_are_no_folder_is_named(install):
    install("acme", {TOOLS: {"acme": "acme_h"}}, acme_h="")
    with pytest.raises(
        ConfigError, match='The tools "acme" of "acme" must be a package with a folder; "acme_h" is none'
    ):
        ids(["acme:*"])


def run(site, *words):
    code = f"import sys; sys.path.insert(0, {str(site)!r}); from handrail.cli import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60, check=False)


def test_a_command_of_a_package_is_one_of_handrails(install):
    source = '''
        """Greet somebody."""
        HELP = "greet somebody"
        def configure(parser): parser.add_argument("name")
        def run(options):
            print(f"hello {options.name}")
            return 0
    '''
    site = install(
        "acme", {COMMANDS: {"greet": "acme_greet", "broken": "acme_broken"}}, acme_greet=source, acme_broken="1 / 0"
    )
    done = run(site, "greet", "Ana")
    assert (done.returncode, done.stdout) == (0, "hello Ana\n")
    listed = run(site, "--help").stdout
    assert "greet somebody" in listed
    assert '"broken" ("acme_broken") of the package "acme" cannot be loaded: division by zero' in listed
    failed = run(site, "broken")
    assert failed.returncode == 1
    assert failed.stderr.count("\n") == 1
    assert 'did you mean "greet"?' in run(site, "gret").stderr


def test_a_package_that_cannot_be_loaded_breaks_only_what_names_its_tools(install):
    install("acme", {TOOLS: {"acme": "acme_nowhere.tools"}})
    assert len(reference.read_reference(["get_tool_guide"])) == 1
    for name in ("acme:thing", "no_such_tool"):
        with pytest.raises(
            ConfigError, match=r'"acme" \("acme_nowhere\.tools"\) of the package "acme" cannot be loaded'
        ):
            reference.read_reference([name])


def test_a_model_whose_factory_raises_is_one_sentence(install):
    install(
        "acme",
        {MODELS: {"acme": "acme_model_g:open_model"}},
        acme_model_g="def open_model(name): raise RuntimeError('no licence')",
    )
    settings = Settings(project=Path(), agent_model="acme:large")
    with pytest.raises(ConfigError, match=r'The model "acme" could not be opened by its package: no licence\.'):
        open_model(settings)


def test_a_command_that_is_none_is_one_sentence(install, capsys):
    install("acme", {COMMANDS: {"acme": "acme_command_h"}}, acme_command_h='"""Says hello."""')
    assert main(["acme"]) == 1
    assert "a command is a module with `configure(parser)` and `run(options)`" in capsys.readouterr().err
