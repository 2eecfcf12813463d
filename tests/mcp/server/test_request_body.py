"""Arguments in the body of a `tools/call`, as they were written: hostile bodies cost no more than others."""

import pytest

from handrail.mcp.server.request_body import read_request


def test_a_text_that_does_not_end_is_looked_at_once() -> None:
    """From each of its quotes on, it would be minutes of work."""
    raw = b'{"a":"' + rb"\"" * 131_072
    assert read_request(raw) == (raw, None)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"method":"tools/call","params":{"arguments":{"a":1,"a":2}},"params":5}',
        b'{"method":"tools/list","params":{"arguments":{"a":1,"a":2}}}',
        b"[" * 3_000,
    ],
)
def test_what_is_no_call_is_left_to_the_reader_of_the_protocol(raw: bytes) -> None:
    assert read_request(raw) == (raw, None)


@pytest.mark.parametrize(
    "arguments",
    ['{"a":1,"a":2}', '{"a":{"b":1,"b":2}}', r'{"a":1,"\u0061":2}', r'{"a":1,"a":"\u0022"}'],
)
def test_arguments_that_an_ordinary_reader_would_change_reach_the_pipeline_as_they_were_written(arguments: str) -> None:
    body, written = read_request(f'{{"method":"tools/call","params":{{"name":"x","arguments":{arguments}}}}}'.encode())
    assert written == arguments
    assert b'"arguments":{}' in body
