"""What came twice is told once where a protocol marks its events; what was meant twice is never lost."""

import pytest
from tests.providers.transports.kit import read, text

from handrail.providers.event_stream import StreamCounters


def chat(piece, **more):
    return {"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}], **more}


def line(piece, when):
    return {"created_at": when, "message": {"role": "assistant", "content": piece}, "done": False}


def chunk(piece, used=None):
    usage = {} if used is None else {"usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": used}}
    return {"candidates": [{"content": {"role": "model", "parts": [{"text": piece}]}, "index": 0}], **usage}


def delta(piece):
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}


CHAT_END = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
LINE_END = {"message": {"content": ""}, "done": True, "done_reason": "stop"}
CHUNK_END = {"candidates": [{"content": {"role": "model"}, "finishReason": "STOP", "index": 0}]}
START = {"type": "message_start", "message": {"id": "msg_1", "usage": {"input_tokens": 3}}}
BLOCK = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
MESSAGE_END = [
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
    {"type": "message_stop"},
]


@pytest.mark.parametrize(
    ("name", "events"),
    [
        ("openai-chat", [chat("ha"), chat("ha"), CHAT_END]),
        ("openai-chat", [chat("ha", obfuscation=""), chat("ha", obfuscation=""), CHAT_END]),
        ("openai-chat", [chat("ha", obfuscation="aB3"), chat("ha", obfuscation="aB3"), CHAT_END]),
        ("openai-chat", [chat("ha", obfuscation="aB3dE6"), chat("ha", obfuscation="aB3dE7"), CHAT_END]),
        ("ollama", [line("ha", "2026-09-21T10:00:00Z"), line("ha", "2026-09-21T10:00:00Z"), LINE_END]),
        ("ollama", [line("ha", "2026-09-21T10:00:00.1Z"), line("ha", "2026-09-21T10:00:00.1Z"), LINE_END]),
        ("ollama", [line("ha", "2026-09-21T10:00:00.000001Z"), line("ha", "2026-09-21T10:00:00.000002Z"), LINE_END]),
        ("gemini", [chunk("ha"), chunk("ha"), CHUNK_END]),
        ("gemini", [chunk("ha", 0), chunk("ha", 0), CHUNK_END]),
        ("gemini", [chunk("ha", 1), chunk("ha", 2), CHUNK_END]),
        ("gemini", [{**chunk("ha"), "usageMetadata": {"thoughtsTokenCount": 80}}] * 2 + [CHUNK_END]),
        ("anthropic", [START, BLOCK, delta("ha"), delta("ha"), *MESSAGE_END]),
        ("anthropic", [START, START, BLOCK, BLOCK, delta("ha"), delta("ha"), delta("ha"), delta("ha"), *MESSAGE_END]),
    ],
)
def test_what_was_meant_twice_is_said_twice(name, events):
    assert text(read(name, events)) == "haha"


@pytest.mark.parametrize(
    ("name", "events", "duplicates"),
    [
        ("openai-chat", [chat("ha", obfuscation="aB3dE6")] * 2 + [CHAT_END], 1),
        ("ollama", [line("ha", "2026-09-21T10:00:00.000001Z")] * 2 + [LINE_END], 1),
        ("gemini", [chunk("ha", 7)] * 2 + [CHUNK_END], 1),
        ("anthropic", [START, START, BLOCK, BLOCK, delta("ha"), delta("ha"), *MESSAGE_END], 3),
    ],
)
def test_what_came_twice_is_said_once_and_counted(name, events, duplicates):
    counters = StreamCounters()
    assert text(read(name, events, counters)) == "ha"
    assert counters.duplicates == duplicates
