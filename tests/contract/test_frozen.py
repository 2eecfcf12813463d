"""Frozen JSON, as JSON libraries are given it."""

from types import MappingProxyType

import orjson
import pytest

from handrail.contract.frozen import for_json, freeze


def test_what_is_frozen_is_written_as_the_json_that_it_was():
    given = {"a": [1, {"b": []}], "c": {}}
    assert orjson.loads(orjson.dumps(freeze(given), default=for_json)) == given
    assert orjson.dumps(MappingProxyType({"a": (1,)}), default=for_json) == b'{"a":[1]}'


def test_what_is_no_json_is_refused():
    with pytest.raises(TypeError):
        orjson.dumps({"a": object()}, default=for_json)
