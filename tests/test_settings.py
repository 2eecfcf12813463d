"""Settings: `handrail.toml` checked key by key, overridden by the environment, each mistake named in one sentence."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.contract.errors import ConfigError, UsageError
from handrail.settings import FILE, Settings, find_project, load_settings


def write(folder, text):
    (folder / FILE).write_text(text, "utf-8")
    return folder


def test_without_a_file_every_setting_has_its_default(tmp_path):
    settings = load_settings(tmp_path, {})

    assert settings == Settings(project=tmp_path)
    assert settings.tools_path == tmp_path / "tools"
    assert settings.artifact_path == tmp_path / "tool_registry.json"
    assert settings.registry_validators == "lazy"
    assert settings.policy.repair is False
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.tools_directory = "other"


def test_the_file_says_what_differs(tmp_path):
    text = '[tools]\ndirectory = "src/tools"\nmodules = ["a.b", "c"]\nartifact = "out/r.json"\n[registry]\nvalidators = "eager"\n'

    settings = load_settings(write(tmp_path, text), {})

    assert settings.tools_path == tmp_path / "src/tools"
    assert settings.tools_modules == ("a.b", "c")
    assert settings.artifact_path == tmp_path / "out/r.json"
    assert settings.registry_validators == "eager"


def test_the_artifact_lies_beside_the_tools_unless_it_is_named(tmp_path):
    settings = load_settings(write(tmp_path, '[tools]\ndirectory = "src/tools"\n'), {})

    assert settings.artifact_path == tmp_path / "src" / "tool_registry.json"


def test_an_absolute_tools_directory_is_taken_as_it_is(tmp_path):
    settings = load_settings(write(tmp_path, '[tools]\ndirectory = "/opt/tools"\n'), {})

    assert (settings.tools_path, settings.artifact_path) == (Path("/opt/tools"), Path("/opt/tool_registry.json"))


def test_the_environment_overrides_the_file(tmp_path):
    write(tmp_path, '[tools]\ndirectory = "file"\nmodules = ["file"]\n')
    environment = {
        "HANDRAIL_TOOLS_DIRECTORY": "environment",
        "HANDRAIL_TOOLS_MODULES": "one, two.three ,",
        "HANDRAIL_REGISTRY_VALIDATORS": "eager",
        "HANDRAIL_ENV": "production",
        "TOOLS_DIRECTORY": "not ours",
    }

    settings = load_settings(tmp_path, environment)

    assert settings.tools_directory == "environment"
    assert settings.tools_modules == ("one", "two.three")
    assert settings.registry_validators == "eager"
    assert load_settings(tmp_path, {"HANDRAIL_TOOLS_MODULES": ""}).tools_modules == ()


def test_policy_is_a_table_of_the_file(tmp_path):
    settings = load_settings(write(tmp_path, "[policy]\nrepair = true\n[policy.voice]\nturn_ms = 2000\n"), {})

    assert settings.policy.repair is True
    assert settings.policy.voice.turn_ms == 2000


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[tools", "handrail.toml is not TOML"),
        ("a = 1\na = 2\n", "handrail.toml is not TOML"),
        ("[tools]\n[tools]\n", r"Cannot declare \[tools\] twice"),
        ("[services.kb]\n[services.kb]\n", r"Cannot declare \[services\.kb\] twice"),
        ("x = 1\n", r"no section \[x\]"),
        ("[tool]\n", 'did you mean "tools"'),
        ("tools = 1\n", r"\[tools\] in handrail.toml must be a table"),
        ("policy = 1\n", r"\[policy\] in handrail.toml must be a table"),
        ("[[tools]]\n", "must be a table"),
        ("[tools]\ndirectroy = 'x'\n", r'\[tools\].*no key "directroy".*did you mean "directory"'),
        ("[tools]\ndirectory = 7\n", r'"directory" in \[tools\] must be text; 7 is not'),
        ("[tools]\ndirectory = ''\n", r'"directory" in \[tools\] must be text'),
        ("[tools]\nmodules = 'a'\n", "must be a list of texts"),
        ("[tools]\nmodules = ['a', 7]\n", "must be a list of texts"),
        ("[tools]\nmodules = ['']\n", "must be a list of texts"),
        ("[registry]\nvalidators = 'now'\n", 'must be "eager" or "lazy"'),
        ("[registry]\nvalidators = true\n", "must be text"),
        ("[policy]\nrepair = 'yes'\n", '"repair".*must be true or false'),
        ("[policy]\nrepare = true\n", 'did you mean "repair"'),
        ("[voice]\nlanguage = 'klingon'\n", r'"language" in \[voice\] must be the tag of a language, such as "en"'),
        ("[voice]\nlanguage = 'en_GB'\n", "must be the tag of a language"),
        ("[voice]\nbase_url = 'nonsense'\n", r'"base_url" in \[voice\] must be an address, such as "https'),
        ("[voice]\nbase_url = 'http://['\n", "must be an address"),
        ("[voice]\nbase_url = 'http://host:port'\n", "must be an address"),
    ],
)
def test_a_mistake_is_named_in_one_sentence(tmp_path, text, says):
    with pytest.raises(ConfigError, match=says) as caught:
        load_settings(write(tmp_path, text), {})

    assert isinstance(caught.value, UsageError)
    assert str(caught.value).endswith((".", "?"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("HANDRAIL_REGISTRY_VALIDATORS", "now"), ("HANDRAIL_REGISTRY_VALIDATORS", ""), ("HANDRAIL_TOOLS_DIRECTORY", " ")],
)
def test_a_mistake_in_the_environment_is_named_too(tmp_path, name, value):
    with pytest.raises(ConfigError, match=name.rsplit("_", 1)[1].lower()):
        load_settings(tmp_path, {name: value})


@pytest.mark.parametrize("language", ["en", "de-AT", "zh-Hant-TW", "es-419", "yue"])
def test_a_language_is_named_by_its_tag(tmp_path, language):
    assert load_settings(write(tmp_path, f'[voice]\nlanguage = "{language}"\n'), {}).voice_language == language


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("HANDRAIL_VOICE_MODLE", 'did you mean "HANDRAIL_VOICE_MODEL"'),
        ("HANDRAIL_POLICY_VOICE_TOTAL_CALL", 'did you mean "HANDRAIL_POLICY_VOICE_TOTAL_CALLS"'),
        ("HANDRAIL_PROMPTS_ZZZZ", "HANDRAIL_PROMPTS_DIRECTORY"),
    ],
)
def test_a_variable_of_a_section_without_such_a_key_is_named(tmp_path, name, says):
    with pytest.raises(ConfigError, match=f'"{name}", which is no setting.*{says}'):
        load_settings(tmp_path, {name: "x"})


def test_variables_that_are_no_settings_of_a_section_are_left_alone(tmp_path):
    others = {"HANDRAIL_ENV": "x", "HANDRAIL_URL": "x", "HANDRAIL_KEY": "x", "HANDRAIL_SECRET_A": "x", "HANDRAIL_": "x"}
    assert load_settings(tmp_path, others).secrets == {"a": "x"}


def test_a_file_that_is_no_text_is_told(tmp_path):
    (tmp_path / FILE).write_bytes(b"\xff")

    with pytest.raises(ConfigError, match="not UTF-8"):
        load_settings(tmp_path, {})


def test_the_project_is_the_nearest_folder_with_a_file(tmp_path):
    outer, inner = tmp_path / "outer", tmp_path / "outer" / "a" / "inner"
    (inner / "deep").mkdir(parents=True)
    write(outer, "")

    assert find_project(inner / "deep") == outer
    write(inner, "")
    assert find_project(inner / "deep") == inner
    assert find_project(tmp_path) == tmp_path
    (inner / "deep" / FILE).mkdir()  # a folder of that name is no project
    assert find_project(inner / "deep") == inner


KEYS = st.sampled_from(["tools", "registry", "directory", "modules", "validators", "artifact", "x", "''"])
VALUES = st.sampled_from(
    ["1", "true", '"x"', '""', "[]", '["a"]', "[1]", "{}", "1979-05-27", "nan", '"eager"', "{a = 1}"]
)


@given(st.lists(st.tuples(KEYS, KEYS, VALUES), max_size=4), st.text(max_size=20))
def test_no_file_gets_more_than_a_config_error(tmp_path_factory, lines, noise):
    text = "".join(f"[{section}]\n{key} = {value}\n" for section, key, value in lines)
    folder = tmp_path_factory.mktemp("settings")
    for content in (text, text + noise):
        (folder / FILE).write_bytes(content.encode(errors="surrogatepass"))
        try:
            outcome: object = load_settings(folder, {})
        except ConfigError as error:
            outcome = str(error)
        assert isinstance(outcome, Settings) or outcome


def test_the_environment_overrides_the_policy(tmp_path):
    write(tmp_path, "[policy]\nrefusals = 7\n[policy.voice]\ntotal_calls = 5\nretrieval_calls = 4\n")
    environment = {
        "HANDRAIL_POLICY_REFUSALS": "9",
        "HANDRAIL_POLICY_REPAIR": "true",
        "HANDRAIL_POLICY_OBSERVE": "loop, rate",
        "HANDRAIL_POLICY_APPROVER_WAIT_SECONDS": "0.5",
        "HANDRAIL_POLICY_VOICE_TOTAL_CALLS": "6",
    }
    policy = load_settings(tmp_path, environment).policy
    assert (policy.refusals, policy.repair, policy.approver_wait_seconds) == (9, True, 0.5)
    assert policy.observe == {"loop", "rate"}
    assert (policy.voice.total_calls, policy.voice.retrieval_calls) == (6, 4)


@pytest.mark.parametrize(
    ("variable", "text", "says"),
    [
        ("HANDRAIL_POLICY_REFUSALS", "many", '"refusals" in a policy must be a whole number'),
        ("HANDRAIL_POLICY_REPAIR", "perhaps", "true or false"),
        ("HANDRAIL_POLICY_VOICE_TOTAL_CALLS", "x", '"total_calls" of policy "voice" must be a number'),
        ("HANDRAIL_POLICY_OBSERVE", "ledger", "cannot be set to observe"),
    ],
)
def test_a_policy_in_the_environment_that_cannot_be_is_one_sentence(tmp_path, variable, text, says):
    with pytest.raises(ConfigError, match=says):
        load_settings(tmp_path, {variable: text})


@pytest.mark.parametrize(
    ("text", "variable", "place"),
    [
        ('[kb]\npath = "x"\n', "HANDRAIL_KB_PATH", "write [services.kb] instead, and HANDRAIL_SERVICES_KB_<KEY>"),
        ("[calendar]\n", "HANDRAIL_CALENDAR_NAMES", "write [services.calendar] instead"),
        ("[images]\n", "HANDRAIL_IMAGES_PAID", "write [services.images] instead"),
        ("[models]\n", "HANDRAIL_MODELS_DIRECTORY", '"models_directory" in [services.kb]'),
        (
            '[policy]\nforget_events = "keep"\n',
            "HANDRAIL_POLICY_FORGET_EVENTS",
            "has moved: write it in [services.calendar].",
        ),
    ],
)
def test_a_setting_that_has_moved_says_where_to(tmp_path, text, variable, place):
    for folder, environment in ((write(tmp_path, text), {}), (tmp_path / "empty", {variable: "x"})):
        with pytest.raises(ConfigError) as caught:
            load_settings(folder, environment)
        assert "has moved: " in str(caught.value)
        assert place in str(caught.value)


def test_what_services_are_given_is_in_no_representation(tmp_path):
    settings = load_settings(write(tmp_path, '[services.shop]\nfactory = "a:b"\npassword = "hidden"\n'), {})
    assert dict(settings.services["shop"].settings) == {"password": "hidden"}
    assert "hidden" not in repr(settings)
    assert "hidden" not in repr(settings.services["shop"])


def test_a_host_s_policy_for_tools_and_its_roles_are_read(tmp_path):
    text = '[access]\nroles = ["manager"]\n[policy]\nrepair = true\n[policy.tools.pay]\nroles = ["manager"]\ntimeout_ms = 500\n'
    settings = load_settings(write(tmp_path, text), {})
    assert settings.access_roles == ("manager",)
    assert settings.policy.repair is True
    assert settings.tool_policies["pay"].settings == {"roles": ["manager"], "timeout_ms": 500}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[policy]\ntools = 5\n", "[policy.tools] in handrail.toml must have a table for each tool"),
        ("[policy.tools.pay]\ntimeot_ms = 5\n", 'has no "timeot_ms"; did you mean "timeout_ms"?'),
        ("[versions]\npay = 5\n", "[versions.pay] must be a table."),
    ],
)
def test_a_policy_for_a_tool_that_cannot_be_used_is_one_sentence(tmp_path, text, sentence):
    with pytest.raises(ConfigError) as caught:
        load_settings(write(tmp_path, text), {})
    assert sentence in str(caught.value)
