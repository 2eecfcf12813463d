"""Whether an Ollama answers on this machine, and which of its models can call tools. Asked once, at the start.

On the standard library alone, because it is asked before anybody has chosen Ollama and installed its extra. Only addresses of
this machine are asked, and no proxy is used. It blocks for two seconds at most: call it before the event loop runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from time import monotonic  # noqa: TID251  # a limit on a real network, at the start, where there is no clock port
from typing import Any
from urllib.parse import urlsplit

from handrail.providers.client_requirements import address_in, is_installed, is_loopback
from handrail.providers.ollama import CLIENT

SECONDS = 2.0
_MAX_MODELS = 50
"""Models of one server that are asked about; the rest are older."""
_MAX_BYTES = 4 * 1024 * 1024
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # what a server binds to; as a destination, this machine


@dataclass(frozen=True, slots=True)
class OllamaFound:
    """An Ollama on this machine, or whatever listens where it would."""

    address: str
    model: str = ""
    """The model that is taken there: the one pulled last of those that can call tools; empty if none of them can."""
    fault: str = ""
    """Why it cannot be asked, as a clause such as "it answers with the status 500"; empty if it answers as Ollama does."""
    usable: bool = True
    """Whether the extra that Handrail needs for it is installed."""


def find_ollama(environment: Mapping[str, str], *, seconds: float = SECONDS) -> OllamaFound | None:
    """The Ollama of this machine, and the model that was pulled last of those that can call tools; None if nobody listens
    there. One that listens and does not answer as Ollama does has a `fault`."""
    address = _local_address(environment)
    server = _OllamaProbe(address, seconds)
    usable = all(map(is_installed, CLIENT.packages))
    try:
        names = [str(model["name"]) for model in _newest_first(server.models())][:_MAX_MODELS]
        able = next((name for name in names if _can_be_taken(server.show(name))), "")
    except _NobodyListens:
        return None
    except _OllamaFault as fault:
        return OllamaFound(address, fault=str(fault), usable=usable)
    return OllamaFound(address, able, usable=usable)


def ollama_problem(address: str, model: str, *, seconds: float = SECONDS) -> str | None:
    """Why a configured model of an Ollama on this machine cannot answer, in a sentence; None if it can, or if the address is
    another machine's, which is not asked before there is something to say."""
    if not is_loopback(urlsplit(address).hostname or ""):
        return None
    server = _OllamaProbe(address, seconds)
    needs = f'The model "ollama:{model}" needs Ollama, and'
    try:
        server.models()
        shown = server.show(model)
    except _NobodyListens:
        return f"{needs} nobody answers at {address}; start it with `ollama serve`."
    except _OllamaFault as fault:
        return f"{needs} what listens at {address} does not work: {fault}; mend it, then start again."
    if shown is None:
        return f'Ollama at {address} has no model "{model}"; run `ollama pull {model}`.'
    if "capabilities" in shown and not _calls_tools(shown):
        return f'The model "{model}" of Ollama cannot call tools; name one that can, such as "ollama:qwen3".'
    return None


def _local_address(environment: Mapping[str, str]) -> str:
    """OLLAMA_HOST where it means this machine, else Ollama's own default: a search must not reach out to others."""
    try:
        address = address_in(CLIENT, environment)
        parts = urlsplit(address)
        host = _EVERYWHERE.get(parts.hostname or "", parts.hostname or "")
        if parts.scheme == "http" and is_loopback(host):
            return f"http://{f'[{host}]' if ':' in host else host}:{parts.port or 11434}"
    except ValueError:
        pass  # not an address at all; whoever configures Ollama learns so
    return CLIENT.default_address


class _NobodyListens(Exception):
    """There is no Ollama."""


class _OllamaFault(Exception):
    """Somebody listens, and does not answer as Ollama does; the message is a clause that says what it does instead."""


_NONSENSE = "it does not answer as Ollama does"


class _OllamaProbe:
    """Asks one Ollama. All that is asked shares one deadline."""

    def __init__(self, address: str, seconds: float) -> None:
        parts = urlsplit(address)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._seconds = seconds
        self._deadline = monotonic() + seconds

    def models(self) -> list[Any]:
        listed = self._ask("GET", "/api/tags").get("models")
        if not isinstance(listed, list):
            raise _OllamaFault(_NONSENSE)
        return listed

    def show(self, model: str) -> dict[str, Any] | None:
        """What it says about a model; None if it does not have it."""
        try:
            return self._ask("POST", "/api/show", {"model": model})
        except _NoSuchThing:
            return None

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        # A timeout of 0 would make a socket that does not wait at all.
        connection = HTTPConnection(self._host, self._port, timeout=max(0.001, self._deadline - monotonic()))
        try:
            self._connect(connection)
            sent = None if body is None else json.dumps(body)
            connection.request(method, path, sent, {"content-type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                kind = _NoSuchThing if response.status == 404 else _OllamaFault
                raise kind(f"it answers with the status {response.status}")
            found = json.loads(response.read(_MAX_BYTES))
        except TimeoutError:
            raise _OllamaFault(f"it does not answer within {self._seconds:g} seconds") from None
        except (OSError, HTTPException, ValueError, RecursionError):
            raise _OllamaFault(_NONSENSE) from None
        finally:
            connection.close()
        if not isinstance(found, dict):
            raise _OllamaFault(_NONSENSE)
        return found

    @staticmethod
    def _connect(connection: HTTPConnection) -> None:
        try:
            connection.connect()
        except TimeoutError:
            raise  # somebody listens, and is too busy to take a connection
        except OSError:
            raise _NobodyListens from None


class _NoSuchThing(_OllamaFault):
    """The status 404."""


def _newest_first(models: list[Any]) -> list[dict[str, Any]]:
    listed = [one for one in models if isinstance(one, dict) and one.get("name")]
    found = [one for one in listed if not _is_remote(one) and not str(one["name"]).endswith(("-cloud", ":cloud"))]
    # Twice, and sorting is stable: of models that were pulled at one moment the same one comes first at every start.
    by_name = sorted(found, key=lambda one: str(one["name"]))
    return sorted(by_name, key=lambda one: str(one.get("modified_at", "")), reverse=True)


def _is_remote(facts: Mapping[str, Any]) -> bool:
    """Whether Ollama only passes the model on to its vendor's servers: that sends words away, which nobody has asked for."""
    return bool(facts.get("remote_host") or facts.get("remote_model"))


def _can_be_taken(shown: Mapping[str, Any] | None) -> bool:
    return shown is not None and _calls_tools(shown) and not _is_remote(shown)


def _calls_tools(shown: Mapping[str, Any] | None) -> bool:
    abilities = (shown or {}).get("capabilities")
    return isinstance(abilities, list) and "tools" in abilities
