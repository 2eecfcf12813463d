"""MiniLM's vectors are the published model's, whatever text comes and however it is batched."""

import math
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import handrail_reference.services.embeddings.minilm as minilm_module
from handrail_reference.services.embeddings.minilm import DIMENSIONS, MAX_TOKENS, MiniLM, _gelu, _in_blocks

# What other people's runs of the published model, with other software, print for its own example sentences.
PUBLISHED = {
    "This is an example sentence": (0.06765693, 0.06349593, 0.04871314, 0.07930495, 0.03744806, 0.00265273),
    "Each sentence is converted": (0.0864386, 0.1027626, 0.0053946, 0.0020444, -0.0099633),
}
# float32 knows seven digits, and sums in another order differ in the last ones.
CLOSE = 2e-6


def fresh(minilm: MiniLM) -> MiniLM:
    """The same model without what it remembers, so that a comparison compares computations."""
    from handrail_reference.services.embeddings.recent import RecentVectors

    other = object.__new__(MiniLM)
    other.__dict__.update(minilm.__dict__, _recent=RecentVectors(size=0))
    return other


@pytest.mark.parametrize("text", PUBLISHED)
def test_vectors_are_the_published_ones(minilm, text):
    expected = PUBLISHED[text]
    assert minilm.embed([text])[0, : len(expected)] == pytest.approx(expected, abs=1e-6)


class Textbook:
    """The model as its description reads, in float64, one token and one head at a time, padded and masked."""

    def __init__(self, models):
        from safetensors.numpy import load_file

        tensors = load_file(models / "minilm" / "model.safetensors")
        self.tensors = {name: value.astype(np.float64) for name, value in tensors.items()}

    def dense(self, name, values):
        return values @ self.tensors[f"{name}.weight"].T + self.tensors[f"{name}.bias"]

    def norm(self, name, values):
        mean = values.mean(-1, keepdims=True)
        return (values - mean) / np.sqrt(values.var(-1, keepdims=True) + 1e-12) * self.tensors[f"{name}.weight"] + (
            self.tensors[f"{name}.bias"]
        )

    def attention(self, name, values, mask):
        query, key, value = (self.dense(f"{name}.self.{part}", values) for part in ("query", "key", "value"))
        heads = []
        for head in range(12):
            part = slice(head * 32, head * 32 + 32)
            scores = query[:, part] @ key[:, part].T / math.sqrt(32) + np.where(mask, 0, -1e30)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            heads.append(weights / weights.sum(-1, keepdims=True) @ value[:, part])
        return self.dense(f"{name}.output.dense", np.concatenate(heads, axis=-1))

    def embed(self, ids, padding=5):
        mask = np.array([True] * len(ids) + [False] * padding)
        words = self.tensors["embeddings.word_embeddings.weight"][[*ids, *[0] * padding]]
        values = words + self.tensors["embeddings.position_embeddings.weight"][: len(mask)]
        values = self.norm("embeddings.LayerNorm", values + self.tensors["embeddings.token_type_embeddings.weight"][0])
        erf = np.vectorize(math.erf)
        for number in range(6):
            name = f"encoder.layer.{number}"
            seen = self.norm(
                f"{name}.attention.output.LayerNorm", values + self.attention(f"{name}.attention", values, mask)
            )
            wide = self.dense(f"{name}.intermediate.dense", seen)
            wide = wide * (1 + erf(wide / math.sqrt(2))) / 2
            values = self.norm(f"{name}.output.LayerNorm", seen + self.dense(f"{name}.output.dense", wide))
        mean = values[mask].mean(0)
        return mean / np.linalg.norm(mean)


def test_vectors_are_those_of_the_textbook(minilm, models):
    textbook = Textbook(models)
    # The line numbers in the published vocabulary of: [CLS] hold on to the hand ##rail ! [SEP]
    for text, ids in (
        ("Hold on to the handrail!", [101, 2907, 2006, 2000, 1996, 2192, 15118, 999, 102]),
        ("", [101, 102]),
    ):
        assert np.abs(minilm.embed([text])[0] - textbook.embed(ids)).max() < CLOSE


@pytest.mark.parametrize(("outputs", "inputs"), [(1152, 384), (384, 384), (1536, 384), (384, 1536)])
@pytest.mark.parametrize(("rows", "threads"), [(0, 1), (1, 1), (39, 2), (40, 1), (41, 1), (170, 1), (170, 2)])
def test_weights_in_blocks_multiply_as_they_do_in_one(monkeypatch, outputs, inputs, rows, threads):
    monkeypatch.setattr(minilm_module, "_blas_threads", lambda: threads)
    numbers = np.random.default_rng(5)
    weight, bias, values = (
        numbers.standard_normal(shape, dtype=np.float32) for shape in ((outputs, inputs), (outputs,), (rows, inputs))
    )
    expected = values.astype(np.float64) @ weight.T + bias
    np.testing.assert_allclose(_in_blocks(weight, bias)(values), expected, atol=1e-3)


def test_the_activation_is_the_exact_one():
    values = np.linspace(-12, 12, 48_001, dtype=np.float32).reshape(-1, 1)
    exact = [[float(x) * (1 + math.erf(float(x) / math.sqrt(2))) / 2] for x in values[:, 0]]
    assert np.abs(_gelu(values.copy()) - exact).max() < 1e-6


TEXTS = [
    "How do I reset my password?",
    "",
    "a",
    "Kako mogu promijeniti lozinku? Čćžšđ",
    "word " * 300,
    "銀行の口座を開設したい",
    "🏦" * 40,
    "How do I reset my password?",
    "x" * 5_000,
    "\u202e\u200b\x00\x1b[31m ﬀ \ufeff",
] + [f"sentence number {number} " * (number % 7 + 1) for number in range(24)]


def test_a_batch_gives_what_each_text_gives_alone(minilm):
    model = fresh(minilm)
    together = model.embed(TEXTS)
    assert together.shape == (len(TEXTS), DIMENSIONS)
    assert together.dtype == np.float32
    for place, text in enumerate(TEXTS):
        assert np.abs(together[place] - model.embed([text])[0]).max() < CLOSE, text[:40]


def test_the_order_of_a_batch_is_kept(minilm):
    model = fresh(minilm)
    forth, back = model.embed(TEXTS), model.embed(TEXTS[::-1])
    assert np.abs(forth - back[::-1]).max() < CLOSE


def test_every_vector_has_length_one(minilm):
    assert np.abs(np.linalg.norm(minilm.embed(TEXTS), axis=1) - 1).max() < 1e-5


def test_no_texts_give_no_vectors(minilm):
    assert minilm.embed([]).shape == (0, DIMENSIONS)


def test_only_the_first_tokens_count(minilm):
    # Each "word" is one token; two of the tokens are the marks around the text.
    fits = "word " * (MAX_TOKENS - 2)
    one, longer, shorter = minilm.embed([fits, fits + "bank account", fits.removesuffix("word ")])
    assert np.abs(one - longer).max() < CLOSE
    assert np.abs(one - shorter).max() > 10 * CLOSE


def test_an_enormous_text_is_cut_and_not_worked_through(minilm, monkeypatch):
    seen = []
    model = fresh(minilm)

    class Spy:
        def encode(self, text):
            seen.append(text)
            return minilm._tokenizer.encode(text)

    model._tokenizer = Spy()
    head = "the quick brown fox " * 200
    assert np.array_equal(model.embed([head + "z " * 10_000_000]), minilm.embed([head]))
    assert len(seen[0]) <= 16_384


def test_long_white_space_does_not_push_words_out(minilm):
    spread = "\n\n".join(f"{word}{' ' * 2_000}" for word in ("open", "a", "bank", "account", "today", "please"))
    near, far = minilm.embed([spread + " " * 20_000 + "now", "open a bank account today please now"])
    assert np.abs(near - far).max() < CLOSE


def test_near_meanings_lie_closer_than_far_ones(minilm):
    question, near, far = minilm.embed(
        ["I forgot my password", "How can I reset my login credentials?", "The cake needs two eggs and some flour"]
    )
    assert question @ near > question @ far + 0.3


@given(st.text(alphabet=st.characters(exclude_categories=[]), max_size=40))
def test_any_text_has_a_vector_of_length_one(minilm, text):
    assert np.linalg.norm(minilm.embed([text])[0]) == pytest.approx(1, abs=1e-5)


def test_half_characters_are_replaced(minilm):
    assert np.array_equal(minilm.embed(["good \ud83d day"]), minilm.embed(["good ? day"]))


def test_what_is_remembered_cannot_be_changed_by_a_caller(minilm):
    first = minilm.embed(["remember me"])
    kept = first.copy()
    first[:] = 0
    assert np.array_equal(minilm.embed(["remember me"]), kept)


def test_several_threads_may_embed_at_once(minilm):
    model = fresh(minilm)
    texts = [f"thread text {number}" for number in range(6)]
    alone = [model.embed([text])[0] for text in texts]
    results = {}

    def work(text):
        results[text] = model.embed([text])[0]

    threads = [threading.Thread(target=work, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for text, expected in zip(texts, alone, strict=True):
        assert np.abs(results[text] - expected).max() < CLOSE


def test_recent_vectors_forget_the_oldest_and_skip_long_texts():
    from handrail_reference.services.embeddings.recent import RecentVectors

    recent = RecentVectors(size=2)
    vector = np.ones(3, dtype=np.float32)
    for text in ("a", "b"):
        recent.put(text, vector)
    assert recent.get("a") is not None
    recent.put("c", vector)
    recent.put("long" * 1_000, vector)
    assert [recent.get(text) is not None for text in ("a", "b", "c", "long" * 1_000)] == [True, False, True, False]
