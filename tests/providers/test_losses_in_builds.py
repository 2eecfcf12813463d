"""Losses and limits on their way to the author: once, sorted, as warnings or as notes."""

import json
from pathlib import Path
from typing import Any

from tests.providers.made_schemas import TEXT, a_definition, an_object
from tests.runtime.kit import NOTHING, Tools, reading

from handrail.build.compiler import BuildPlan, BuildResult, build
from handrail.cli import main
from handrail.providers import adapt, provider_names
from handrail.providers.catalogue import get_provider

HIGH = {"type": "integer", "minimum": 1, "default": 5}
EITHER = {**an_object([], a=TEXT, b=TEXT), "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}


def built(root: Path, **tools: dict[str, Any]) -> BuildResult:
    kit = Tools(root)
    kit.write({name: (reading(parameters=parameters), NOTHING) for name, parameters in tools.items()})
    return build(BuildPlan(tools=kit.folder, artifact=kit.artifact, project=root))


def test_what_all_formats_lose_alike_is_said_once(tmp_path: Path):
    result = built(tmp_path, find=EITHER)
    (warning,) = result.warnings
    assert (warning.rule, warning.place) == ("provider-loss", "/parameters/oneOf")
    others = [name for name in provider_names() if name not in ("openai-chat", "mcp")]
    assert warning.message == (
        'The format of "openai-chat" cannot express "oneOf": refused at the root, so put into the description. '
        f"The same goes for {', '.join(map(json.dumps, others))}."
    )


def test_what_models_are_told_in_words_is_listed_and_no_warning(tmp_path: Path):
    result = built(tmp_path, b_tool=an_object(n=HIGH), a_tool=an_object(n=HIGH))
    assert result.findings == ()
    ollama = [(loss.tool, loss.keyword, loss.place) for loss in result.losses if loss.provider == "ollama"]
    places = [
        ("additionalProperties", "/parameters/additionalProperties"),
        ("default", "/parameters/properties/n/default"),
        ("minimum", "/parameters/properties/n/minimum"),
    ]
    assert ollama == [(tool, *place) for tool in ("a_tool", "b_tool") for place in places]
    assert list(result.losses) == sorted(result.losses)


def test_the_command_names_what_is_sent_under_another_name(tmp_path: Path, monkeypatch, capsys):
    kit = Tools(tmp_path)
    kit.write({"put": (reading(parameters=an_object(**{"Content-Type": TEXT, "a/b": TEXT})), NOTHING)})
    monkeypatch.chdir(tmp_path)
    assert main(["build", "--strict"]) == 0
    assert capsys.readouterr().out.endswith(
        ' Sent under another name, and renamed back in calls: "put.Content-Type" (gemini, gemini-live); '
        '"put.a/b" (anthropic, gemini, gemini-live).\n'
    )


def test_the_command_lists_what_models_are_told_in_words_as_json_and_does_not_trouble_the_author_with_it(
    tmp_path: Path, monkeypatch, capsys
):
    kit = Tools(tmp_path)
    kit.write({"count": (reading(parameters=an_object(n=HIGH)), NOTHING)})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("handrail.cli.output._LINE_EVERY_SECONDS", float("inf"))
    assert main(["build", "--strict"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("Built 1 tool into tool_registry.json, version ")
    assert said.out.count("\n") == 1
    assert "ollama" not in said.out
    assert said.err == ""
    assert main(["build", "--json"]) == 0
    losses = json.loads(capsys.readouterr().out)["losses"]
    assert {
        "tool": "count",
        "place": "/parameters/properties/n/minimum",
        "keyword": "minimum",
        "provider": "ollama",
        "done": "put into the description",
        "minor": True,
    } in losses


def exceeded(provider, schemas):
    return get_provider(provider).exceeded_limits(schemas)


def offered(provider: str, count: int, parameters: Any = None, *, strict: bool = False) -> list[dict[str, Any]]:
    return [adapt(a_definition(parameters or an_object(a=TEXT), strict=strict), provider).schema] * count


def test_more_tools_than_a_request_takes_are_named():
    assert list(exceeded("openai", offered("openai-chat", 128))) == []
    assert list(exceeded("openai", offered("openai-chat", 129))) == [
        "takes at most 128 tools in one request; these are 129"
    ]
    assert list(exceeded("gemini-live", offered("gemini-live", 512))) == []
    assert list(exceeded("gemini-live", offered("gemini-live", 513)))
    assert list(exceeded("mcp", offered("mcp", 600))) == []


def test_more_strictness_than_a_request_takes_is_named():
    assert list(exceeded("anthropic", offered("anthropic", 600))) == []
    assert list(exceeded("anthropic", offered("anthropic", 20, strict=True))) == []
    assert "20 strict tools" in next(iter(exceeded("anthropic", offered("anthropic", 21, strict=True))))
    half = an_object([], **{f"p{index}": TEXT for index in range(13)})
    assert "24 optional properties" in next(iter(exceeded("anthropic", offered("anthropic", 2, half, strict=True))))
    either = an_object(**{f"p{index}": {"type": ["string", "null"]} for index in range(9)})
    assert "16 properties with" in next(iter(exceeded("anthropic", offered("anthropic", 2, either, strict=True))))


def test_a_build_says_what_does_not_fit_into_one_request(tmp_path: Path):
    result = built(tmp_path, **{f"t{index:03}": an_object(a=TEXT) for index in range(129)})
    assert [limit.split(" ")[0] for limit in result.limits] == ["openai-chat", "openai-realtime", "openai-responses"]
    assert result.limits[0].endswith("Offer fewer of them at a time, by mode or with `pick_tools`.")
    assert result.findings == ()


def test_a_registry_gives_the_schemas_of_all_providers_in_each_mode(tmp_path: Path):
    kit = Tools(tmp_path)
    kit.write(
        {
            "both": (reading(parameters=an_object(a=TEXT)), NOTHING),
            "spoken": (reading(parameters=an_object(n=HIGH), allowedModes=["voice"]), NOTHING),
        }
    )
    registry = kit.build()
    assert len(provider_names()) == 8
    for provider in provider_names():
        every = registry.provider_schemas(provider)
        assert registry.provider_schemas(provider, "voice") == every
        assert registry.provider_schemas(provider, "text") == every[:1]
        assert [name_of(one) for one in every] == ["both", "spoken"]
    assert registry.provider_schemas("geminiNative") == registry.provider_schemas("gemini")


def name_of(schema: dict[str, Any]) -> Any:
    return schema.get("function", schema)["name"]
