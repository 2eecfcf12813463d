"""Results beyond `maxOutputBytes` are cut to fit, whatever they are made of, and the envelope says so."""

import json

import orjson
import pytest

from handrail.testing import open_tools

LIMIT = 60
SCHEMA = {
    "toolId": "echo",
    "version": "1.0.0",
    "description": "Gives back what it is given.",
    "category": "utility",
    "sideEffects": "none",
    "idempotent": True,
    "requiresConfirmation": False,
    "allowedModes": ["text"],
    "latencyBudgetMs": 100,
    "maxOutputBytes": LIMIT,
    "parameters": {"type": "object", "additionalProperties": False, "properties": {"data": {}}},
}


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cut") / "tools" / "echo"
    folder.mkdir(parents=True)
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    (folder / "guide.md").write_text("Echoes.\n")
    (folder / "handler.py").write_text("def execute(args, ctx):\n    return {'ok': True, 'data': args['data']}\n")
    with open_tools(folder.parent) as kit:
        yield kit


@pytest.mark.parametrize(
    "data",
    [
        "x" * 100,
        '"' * 100,
        "\x00" * 100,
        "é😀" * 40,
        list(range(50)),
        ["x" * 100],
        {"text": '\\"' * 100, "n": 1},
        {"items": [{"id": number} for number in range(30)], "total": 30},
        {f"key_{number}": number for number in range(30)},
        {"a long key " * 10: 1},
        {"deep": {"deeper": {"deepest": "x" * 200, "n": 1}}, "kept": "yes"},
    ],
    ids=lambda data: repr(data)[:30],
)
def test_a_result_that_is_too_large_is_cut_to_fit_and_said_to_be(tools, data):
    response = tools.call("echo", {"data": data})

    assert response.ok, response.error
    assert len(orjson.dumps(response.data)) <= LIMIT
    assert response.meta["truncated"] is True
    assert type(response.data) is type(data)


def test_what_is_cut_is_what_is_largest(tools):
    response = tools.call("echo", {"data": {"total": 30, "items": list(range(100)), "more": True}})

    assert (response.data["total"], response.data["more"]) == (30, True)
    assert response.data["items"] == list(range(len(response.data["items"])))
    assert len(response.data["items"]) > 5


@pytest.mark.parametrize("data", ["x" * (LIMIT - 2), [], {}, None, 7, {"a": [1, 2, 3]}])
def test_a_result_that_fits_is_left_as_it_is(tools, data):
    response = tools.call("echo", {"data": data})

    assert response.data == data
    assert "truncated" not in response.meta
