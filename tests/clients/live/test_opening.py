"""Opening a live model by its name: one line says which, and a sentence says what is missing."""

import subprocess
import sys

import pytest

from handrail.clients.live import open_live_model, whats_missing_live
from handrail.contract.errors import ConfigError
from handrail.providers.catalogue import get_provider, schemes

KEYS = {"GEMINI_API_KEY": "k", "OPENAI_API_KEY": "k"}
both = pytest.mark.parametrize("provider", schemes(live=True))


@both
async def test_changing_the_provider_is_changing_the_name(provider: str) -> None:
    model = open_live_model(f"{provider}:a-model", environment=KEYS)
    assert (model.provider, model.name, model.output_rate) == (provider, "a-model", 24_000)
    await model.close()


@pytest.mark.parametrize(
    "spec", ["", "gemini-live", "gemini-live:", "openai:gpt", "openai-realtime:a b", "nobody:model"]
)
def test_a_name_that_is_none_is_refused_with_those_that_are(spec: str) -> None:
    with pytest.raises(ConfigError, match=r'"openai-realtime:…" or "gemini-live:…"'):
        open_live_model(spec, environment=KEYS)


def test_a_near_name_is_suggested() -> None:
    assert 'Did you mean "openai-realtime:m"?' in str(whats_missing_live("openai-realtme:m", environment=KEYS))


@both
def test_nothing_is_suggested_where_only_the_name_of_the_model_is_missing(provider: str) -> None:
    assert "Did you mean" not in str(whats_missing_live(f"{provider}:", environment=KEYS))


@both
def test_a_missing_key_is_named(provider: str) -> None:
    missing = whats_missing_live(f"{provider}:m", environment={"GEMINI_API_KEY": " "})
    assert missing is not None
    assert get_provider(provider).client.keys[0] in missing


@pytest.mark.parametrize("address", ["nonsense", "ftp://host", "https://", "https://host:99999", "ws://example.com/v1"])
@both
def test_an_address_that_is_none_or_open_is_refused(provider: str, address: str) -> None:
    with pytest.raises(ConfigError, match="base URL"):
        open_live_model(f"{provider}:m", environment=KEYS, base_url=address)


def test_a_missing_sdk_is_told_with_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("handrail.providers.client_requirements.find_spec", lambda name: None)
    assert 'pip install "handrail[gemini]"' in str(whats_missing_live("gemini-live:m", environment=KEYS))
    assert 'pip install "handrail[openai]"' in str(whats_missing_live("openai-realtime:m", environment=KEYS))


def test_no_sdk_is_imported_before_a_model_is_opened() -> None:
    program = (
        "import sys, handrail.clients.live, handrail.contract.live\n"
        "import handrail.providers.gemini.live.transport, handrail.providers.openai.realtime.transport\n"
        "print([name for name in ('google.genai', 'openai', 'websockets') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
