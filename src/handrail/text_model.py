"""The text model of a project: finds out which models there are, chooses one (`clients.model_choice`), and opens it.

A model is named by a scheme and, after a colon, what the scheme needs: `demo`, `ollama:qwen3`, `openai:gpt-5-mini`. Schemes that
Handrail does not know itself belong to other packages, which declare them under `handrail.models`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from handrail import clients
from handrail.clients.model_choice import DEMO, ModelChoice, ModelOffer, choose
from handrail.clients.no_model import NoModel
from handrail.contract.errors import ConfigError, HandrailError, missing_extra
from handrail.contract.model import Model
from handrail.plugins import MODELS, entry_points_of, load_plugin
from handrail.providers.catalogue import own_providers
from handrail.providers.ollama.probe import find_ollama
from handrail.providers.provider import load
from handrail.settings import Settings

_LOCAL = "local:"


def choose_model(settings: Settings, flag: str | None = None) -> ModelChoice:
    """The model that answers, and why; `flag` is the name that a command was given. Where none is configured, this machine's
    Ollama is asked, which blocks for up to two seconds. There may be no model at all (`ModelChoice.is_none`)."""
    configured = (flag if flag is not None else settings.agent_model).strip()
    return choose(
        configured,
        base_url=base_url_for(settings, configured) if configured else "",
        named_by="the configuration" if flag is None else "--model",
        ollama=None if configured else find_ollama(os.environ),
        offers=tuple(_offers()),
        has_demo=_demo_factory() is not None,
    )


def choose_working_model(settings: Settings, flag: str | None = None) -> ModelChoice:
    """As `choose_model`, for a start: `ConfigError` if there is no model, or the one that was named cannot answer. No other takes
    its place."""
    choice = choose_model_or_none(settings, flag)
    if choice.is_none:
        offered = "".join(f" {offer.reason}: `--model {offer.model}` uses it." for offer in choice.offers)
        raise ConfigError(f"{choice.sentence}{offered}")
    return choice


def choose_model_or_none(settings: Settings, flag: str | None = None) -> ModelChoice:
    """As `choose_working_model`, for a server, which has more to do than to answer: there may be no model at all."""
    choice = choose_model(settings, flag)
    problem = None if choice.is_none else model_problem(settings, choice)
    if problem is not None:
        raise ConfigError(problem)
    return choice


def _offers() -> Iterator[ModelOffer]:
    """The models whose keys are in the environment. Any other can be named by `--model` or in [agent]."""
    for provider in own_providers().values():
        client = provider.client
        if client is None or not client.suggested_model:
            continue
        found = next((one for one in client.keys if os.environ.get(one, "").strip()), None)
        if found is not None:
            model = f"{provider.schemes[0]}:{client.suggested_model}"
            address = clients.address_of(model, environment=os.environ)
            yield ModelOffer(model, f"{found} is set", urlsplit(address).hostname or client.vendor_host)


def base_url_for(settings: Settings, model: str) -> str:
    """`base_url` in [agent] belongs to the model that is named beside it: another provider's key must not be sent there."""
    same = model.partition(":")[0] == settings.agent_model.partition(":")[0]
    return settings.agent_base_url if same else ""


def model_problem(settings: Settings, choice: ModelChoice) -> str | None:
    """What has to be installed, set or started before the model can answer, in a sentence; None if nothing."""
    model = choice.model
    if model == "offline":
        return '"offline" is now called "demo"; write that, or leave "model" in [agent] out.'
    if model == DEMO:
        return None if _demo_factory() is not None else _NO_DEMO
    if model.startswith(_LOCAL):
        from handrail.providers.local import local_problem  # noqa: PLC0415  # only where such a model is named

        return local_problem(_local_path(settings, model))
    if _is_plugin(model):
        return None
    missing = clients.whats_missing(model, environment=os.environ, base_url=choice.base_url)
    scheme, _, name = model.partition(":")
    client = clients.text_client(scheme)
    if missing is not None or client is None or not client.problem:
        return missing
    address = clients.address_of(model, environment=os.environ, base_url=choice.base_url)
    problem: str | None = load(client.problem)(address, name)
    return problem


def open_model(settings: Settings, choice: ModelChoice | None = None) -> Model:
    """The model that was chosen, or that the settings choose; `ConfigError` if it cannot be used. Whoever chose to have none is
    given one that says so."""
    chosen = choice or choose_model(settings)
    if chosen.is_none:
        if choice is None:
            raise ConfigError(chosen.sentence)
        return NoModel(chosen.sentence)
    if chosen.is_demo:
        make = _demo_factory()
        if make is None:
            raise ConfigError(_NO_DEMO)
        return _made(make, DEMO, "")
    if _is_plugin(chosen.model):
        scheme, _, name = chosen.model.partition(":")
        return _made(_plugin(scheme), scheme, name)
    seconds = float(settings.agent_model_seconds)
    limits = clients.ClientLimits(
        connect_seconds=min(10.0, seconds), idle_seconds=seconds, total_seconds=max(300.0, seconds)
    )
    if chosen.model.startswith(_LOCAL):
        from handrail.providers.local import open_local  # noqa: PLC0415  # only where such a model is named

        path = _local_path(settings, chosen.model)
        return open_local(path, limits=limits, instructions=_own_instructions(settings))
    return clients.open_model(chosen.model, environment=os.environ, base_url=chosen.base_url, limits=limits)


def _made(factory: Callable[[str], Model], scheme: str, name: str) -> Model:
    """A model of another package; `ConfigError` with one sentence if its factory fails."""
    try:
        return factory(name)
    except HandrailError:
        raise
    except Exception as error:  # another package's code may raise anything
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        raise ConfigError(f'The model "{scheme}" could not be opened by its package: {reason}.') from error


def model_provider(settings: Settings) -> str:
    """Whose schema format the model's tools have. A configured model is not opened: no key is needed to ask. Without any model
    it is the format that most of them take."""
    choice = choose_model(settings)
    if choice.is_none:
        return NoModel.provider
    if choice.model.startswith(_LOCAL):
        from handrail.providers.local import LocalModel  # noqa: PLC0415  # only where such a model is named

        return LocalModel.provider
    if choice.is_demo or _is_plugin(choice.model):
        return open_model(settings, choice).provider
    return clients.provider_of(choice.model)


def _local_path(settings: Settings, model: str) -> Path:
    """The file of a local model: beside `handrail.toml`, or where a command was started."""
    name = Path(model.removeprefix(_LOCAL)).expanduser()
    in_project = settings.project / name
    return name.absolute() if name.is_file() and not in_project.is_file() else in_project


def _own_instructions(settings: Settings) -> str:
    """The project's own `core.md`. Handrail's prompts are too long for a small model; see `providers.local.prompt`."""
    path = settings.project / settings.prompts_directory / "core.md"
    return path.read_text("utf-8") if settings.prompts_directory and path.is_file() else ""


_NO_DEMO = str(missing_extra("The demo model", "reference"))


def _demo_factory() -> Callable[[str], Model] | None:
    """What makes the demo model; None where it is not installed."""
    return _plugin(DEMO) if DEMO in entry_points_of(MODELS) else None


def _plugin(scheme: str) -> Callable[[str], Model]:
    """The factory of another package's models: it is given what stands after the colon."""
    factory: Callable[[str], Model] = load_plugin(MODELS, scheme)
    return factory


def _is_plugin(model: str) -> bool:
    scheme = model.partition(":")[0]
    return not clients.is_text_scheme(scheme) and scheme in entry_points_of(MODELS)
