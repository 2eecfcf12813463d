"""A project takes reference tools in by one line of its handrail.toml."""

import json


def take(project, line):
    path = project / "handrail.toml"
    text = path.read_text()
    assert text.count("reference = []") == 1
    path.write_text(text.replace("reference = []", line))


def test_a_reference_tool_is_built_listed_and_called(project, handrail):
    take(project, 'reference = ["format_datetime"]')
    assert handrail("build").out.startswith("Built 1 tool into tool_registry.json")
    assert "format_datetime" in handrail("list").out
    said = handrail(
        "call", "format_datetime", "--args", '{"value": "2026-03-29T09:30:00Z", "time_zone": "Europe/Zagreb"}'
    )
    assert (said.code, json.loads(said.out)["ok"]) == (0, True)
    assert handrail("build", "--check").code == 0


def test_the_environment_may_name_them_too(project, handrail, monkeypatch):
    monkeypatch.setenv("HANDRAIL_TOOLS_REFERENCE", "format_datetime, rank_results")
    assert json.loads(handrail("build", "--json").out)["tools"] == ["format_datetime", "rank_results"]


def test_an_unknown_one_is_one_sentence(project, handrail):
    take(project, 'reference = ["format_date"]')
    said = handrail("build")
    assert said == (
        2,
        "",
        'handrail build: "reference" in [tools] names "format_date", which is no reference tool; '
        'did you mean "format_datetime"?\n',
    )
    assert not (project / "tool_registry.json").exists()


def test_a_list_that_is_none_is_one_sentence(project, handrail):
    take(project, "reference = true")
    said = handrail("build")
    assert (said.code, said.err) == (
        2,
        'handrail build: "reference" in [tools] must be a list of texts; True is not.\n',
    )


def test_the_doctor_knows_a_project_of_reference_tools_alone(project, handrail):
    take(project, 'reference = ["rank_results"]')
    for name in (".gitkeep", ""):
        path = project / "tools" / name
        path.unlink() if name else path.rmdir()
    assert handrail("build").code == 0
    assert "FAIL" not in handrail("doctor").out
