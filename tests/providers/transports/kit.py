"""What the tests of transports share: the readers, and the checked examples of every wire format."""

import json
from importlib import import_module

from tests.providers import wire_examples

from handrail.contract.model import CallMade, Finished, TextDelta, Usage
from handrail.providers.catalogue import get_provider
from handrail.providers.event_stream import StreamCounters

NAMES = ("openai-chat", "openai-responses", "anthropic", "gemini", "ollama")
MODEL = "example-model"


def transport(name):
    return import_module(get_provider(name).transport)


def example(name):
    return wire_examples.example(f"{name}.json")


def read(name, events, counters=None):
    """Everything that a transport makes of these events; bytes go in as they are, all else as JSON."""
    reader = transport(name).new_reader(MODEL, counters or StreamCounters())
    told = []
    for event in events:
        data = event if isinstance(event, bytes) else json.dumps(event).encode()
        told += reader.feed(data)
    return told + list(reader.end())


def calls(events):
    return [event.call for event in events if isinstance(event, CallMade)]


def text(events):
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def usage(events):
    return next((event for event in events if isinstance(event, Usage)), None)


def finished(events):
    assert isinstance(events[-1], Finished)
    assert sum(isinstance(event, Finished) for event in events) == 1
    return events[-1]
