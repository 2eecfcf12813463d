"""Which model answers: what is configured, else an Ollama of this machine, else the demo; keys are only offered."""

import pytest

from handrail.cli.model_lines import offer_lines
from handrail.clients.model_choice import ModelChoice, ModelOffer, OllamaFound, choose
from handrail.contract.errors import ConfigError
from handrail.settings import Settings
from handrail.text_model import base_url_for, choose_model, choose_working_model, open_model

OPENAI = ModelOffer("openai:gpt-5-mini", "OPENAI_API_KEY is set", "api.openai.com")
OLLAMA = OllamaFound("http://127.0.0.1:11434", "qwen3:4b")


def test_what_is_configured_answers_whatever_else_there_is():
    choice = choose("anthropic:m", base_url="http://127.0.0.1:1", ollama=OLLAMA, offers=[OPENAI])
    assert (choice.model, choice.base_url) == ("anthropic:m", "http://127.0.0.1:1")
    assert choice.offers == (OPENAI,)


def test_an_ollama_of_this_machine_answers_where_nothing_is_configured():
    choice = choose("", ollama=OLLAMA, offers=[OPENAI])
    assert (choice.model, choice.base_url) == ("ollama:qwen3:4b", OLLAMA.address)
    assert "127.0.0.1:11434" in choice.sentence


def test_a_key_is_offered_and_not_used():
    choice = choose("", offers=[OPENAI])
    assert choice.model == "demo"
    assert choice.offers == (OPENAI,)
    assert choice.sentence == "Answered by the demo model: no language model is connected."


@pytest.mark.parametrize(
    ("ollama", "advice"),
    [
        (OllamaFound("http://127.0.0.1:11434"), "ollama pull"),
        (OllamaFound("http://127.0.0.1:11434", "qwen3", usable=False), 'pip install "handrail[ollama]"'),
    ],
)
def test_an_ollama_that_cannot_be_used_is_explained(ollama, advice):
    choice = choose("", ollama=ollama)
    assert choice.is_demo
    assert advice in choice.reason


BROKEN = OllamaFound("http://127.0.0.1:11434", fault="it answers with the status 500")


def test_a_broken_ollama_is_told_apart_from_none_and_the_demo_answers_instead():
    choice = choose("", ollama=BROKEN)
    assert choice.broken == "Ollama at http://127.0.0.1:11434 does not work: it answers with the status 500"
    assert choice.sentence == (
        f"Answered by the demo model: no language model is connected ({choice.broken}; mend it or name a model, then start "
        "again)."
    )
    assert choose("").broken == ""


def test_without_any_model_the_ways_to_connect_one_are_named(tmp_path, monkeypatch):
    choice = choose("", has_demo=False, ollama=BROKEN, offers=[OPENAI])
    assert choice.is_none
    assert choice.sentence.startswith(f"No model is connected ({choice.broken}). ")
    for way in ("Ollama", "local:", "openai:", "anthropic:", "gemini:", "handrail[reference]"):
        assert way in choice.sentence
    monkeypatch.setattr("handrail.text_model._demo_factory", lambda: None)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    for start in (choose_working_model, open_model):
        with pytest.raises(ConfigError, match=r"^No model is connected\. Start Ollama"):
            start(Settings(project=tmp_path))
    with pytest.raises(ConfigError, match=r"OPENAI_API_KEY is set: `--model openai:gpt-5-mini` uses it\."):
        choose_working_model(Settings(project=tmp_path))


def test_what_answers_already_is_not_offered():
    assert choose("openai:gpt-5-mini", offers=[OPENAI]).offers == ()


def test_keys_of_the_environment_become_offers(tmp_path, monkeypatch):
    monkeypatch.setenv("GOOGLE_API_KEY", "k")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    monkeypatch.setenv("OPENAI_API_KEY", "  ")
    offers = choose_model(Settings(project=tmp_path)).offers
    assert [(offer.model.partition(":")[0], offer.reason, offer.vendor) for offer in offers] == [
        ("gemini", "GOOGLE_API_KEY is set", "generativelanguage.googleapis.com"),
        ("anthropic", "ANTHROPIC_API_KEY is set", "api.anthropic.com"),
    ]


def test_another_providers_key_is_not_sent_to_the_configured_address(tmp_path):
    settings = Settings(project=tmp_path, agent_model="ollama:m", agent_base_url="http://elsewhere.example")
    assert base_url_for(settings, "openai:gpt-5-mini") == ""
    assert base_url_for(settings, "ollama:other") == "http://elsewhere.example"


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("openai:m", 'The model "openai:m" needs a key; set OPENAI_API_KEY in the environment.'),
        ("ollama:m", "nobody answers at http://127.0.0.1:9; start it with `ollama serve`"),
        ("offline", '"offline" is now called "demo"'),
        ("nobody:m", 'write "demo", "local:PATH.gguf", or one of'),
    ],
)
def test_a_configured_model_that_is_broken_is_an_error_and_no_other_takes_its_place(tmp_path, model, sentence):
    with pytest.raises(ConfigError) as caught:
        choose_working_model(Settings(project=tmp_path, agent_model=model))
    assert sentence in str(caught.value)


def test_the_demo_model_can_be_named(tmp_path):
    choice = choose_working_model(Settings(project=tmp_path, agent_model="openai:m"), "demo")
    assert choice == ModelChoice("demo", "--model names it")
    assert open_model(Settings(project=tmp_path), choice).provider


def test_a_key_of_the_provider_that_answers_is_no_offer_of_another_model():
    other = ModelOffer("anthropic:claude-haiku-4-5", "ANTHROPIC_API_KEY is set", "api.anthropic.com")
    lines = list(offer_lines(choose("openai:gpt-4.1-mini", offers=[OPENAI, other])))
    assert [line.partition(":")[0] for line in lines] == ["ANTHROPIC_API_KEY is set"]
    assert len(list(offer_lines(choose("", offers=[OPENAI, other])))) == 2
