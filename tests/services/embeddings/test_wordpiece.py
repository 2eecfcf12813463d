"""Tokens are those of the published tokenizer, which runs beside ours here: same text, same numbers."""

import json
from itertools import islice
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail_reference.services.embeddings import wordpiece
from handrail_reference.services.embeddings.minilm import MAX_TOKENS
from handrail_reference.services.embeddings.wordpiece import WordPiece, read_vocabulary

DATA = Path(__file__).parents[2] / "data"
ENDLESS = 1 << 30
MARKS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@pytest.fixture(scope="session")
def file(models):
    return (models / "minilm" / "tokenizer.json").read_bytes()


@pytest.fixture(scope="session")
def published(file):
    """The library's tokenizer, as the file describes it, but for its length."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_buffer(file)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


@pytest.fixture(scope="session")
def ours(file):
    return WordPiece(read_vocabulary(file), max_tokens=ENDLESS)


def differences(ours, published, texts):
    encodings = published.encode_batch(texts)
    return [text for text, encoding in zip(texts, encodings, strict=True) if ours.encode(text) != encoding.ids]


def assert_same_for_characters(ours, published, codes):
    """Each within a word, alone, and twice; many to a text, because a call of the library is slow."""
    characters = (chr(code) for code in codes if not 0xD800 <= code < 0xE000)
    while some := list(islice(characters, 64)):
        text = " ".join(f"a{one}b {one} x{one}{one}" for one in some)
        assert differences(ours, published, [text]) == []


@pytest.mark.parametrize("part", [0, 1 << 16, 1 << 24])
def test_the_vocabulary_is_the_whole_one_wherever_it_is_cut(file, published, monkeypatch, part):
    monkeypatch.setattr(wordpiece, "_PART_BYTES", part)
    monkeypatch.setattr(wordpiece, "_PAUSE_SECONDS", 0)
    assert read_vocabulary(file) == published.get_vocab(with_added_tokens=True)


def test_the_vocabulary_is_read_in_short_parts(file, monkeypatch):
    lengths = []

    class Reader:
        @staticmethod
        def loads(data):
            lengths.append(len(data))
            return orjson.loads(data)

    monkeypatch.setattr(wordpiece, "orjson", Reader)
    read_vocabulary(file)
    assert len(lengths) > 5
    assert max(lengths) < 70_000


def test_characters_become_the_same_tokens(ours, published):
    assert_same_for_characters(ours, published, range(0x3400))
    assert_same_for_characters(ours, published, range(0x3400, 0x110000, 101))


@pytest.mark.long
def test_every_character_becomes_the_same_tokens(ours, published):
    assert_same_for_characters(ours, published, range(0x110000))


def test_where_a_list_of_characters_begins_and_ends_the_tokens_are_the_same(ours, published):
    for kind in (wordpiece.DROPPED, wordpiece.IDEOGRAPHS, wordpiece.PUNCTUATION):
        codes = sorted({bound + aside for bound in kind._bounds for aside in (-1, 0)})
        assert_same_for_characters(ours, published, [code for code in codes if 0 <= code < 0x110000])


ACCENTED = "aeiouAEIOUİIıßſΣςσǅﬀÅåÇçÑñÜüŐő가힣각조선한글각각がガが"
COMBINING = (
    "\u0300\u0301\u0307\u0308\u030a\u0323\u0327\u0338\u0344\u0345\u05b0\u093c\u1dc0\u302e\u302f\u3099\u20dd\U0001d165"
)
ODD = "\x00\x07\x0b\x0c\x1c\x1f\x7f\x85\xa0\xad\u00b4\u037e\u1680\u180e\u200b\u200d\u2028\u202e\u2060\u3000\ufeff\ufffd\uffff"
LATER = "\u07fd\u0898\u08e2\u1abf\u2e43\u2e5d\ua7c5\ua7cb\U0001e95e\U00013430\U00011938\U0001f9ff\U0002b820\U0003134a"


@given(
    st.lists(
        st.one_of(
            st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20),
            st.text(alphabet=ACCENTED + COMBINING + ODD + LATER, max_size=20),
            st.text(alphabet="abcdefghij#'-[]日本 ", max_size=20),
            st.sampled_from([*MARKS, "[cls]", "[[CLS]]", "[SEP", "##ing", "bank account", "unaffable", " "]),
        ),
        max_size=12,
    ).map("".join)
)
def test_any_text_becomes_the_same_tokens(ours, published, text):
    assert ours.encode(text) == published.encode(text).ids


@pytest.mark.parametrize("length", [99, 100, 101])
@pytest.mark.parametrize("letter", ["a", "é", "ﬀ", "가", "\u0301a", "日"])
def test_words_of_about_the_longest_length_become_the_same_tokens(ours, published, length, letter):
    assert differences(ours, published, [letter * length, f"go {letter * length}-{letter} on"]) == []


@pytest.mark.parametrize("words", [0, 1, 252, 253, 254, 255, 300])
@pytest.mark.parametrize("word", ["word ", "handrails ", "[SEP]", "\u1234 ", "日"])
def test_long_texts_are_cut_at_the_same_token(file, published, words, word):
    ours = WordPiece(read_vocabulary(file), max_tokens=MAX_TOKENS)
    whole = published.encode(word * words).ids
    cut = whole if len(whole) <= MAX_TOKENS else [*whole[: MAX_TOKENS - 1], whole[-1]]
    assert ours.encode(word * words) == cut


@pytest.mark.parametrize("name", ["banking_kb_dev.json", "bfcl_dev.json", "metatool_dev.json"])
def test_real_texts_become_the_same_tokens(ours, published, name):
    texts = sorted(set(strings(json.loads((DATA / name).read_text(encoding="utf-8")))))
    assert len(texts) > 500
    assert differences(ours, published, texts) == []


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield key
            yield from strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from strings(one)


def test_what_is_remembered_of_characters_is_bounded(file):
    ours = WordPiece(read_vocabulary(file), max_tokens=MAX_TOKENS)
    for start in range(0x10000, 0x20000, 0x1000):
        ours.encode("".join(map(chr, range(start, start + 0x1000))))
    assert len(ours._characters) == 1 << 15
    assert ours.encode("Čaj \U0001f9ff") == WordPiece(read_vocabulary(file), max_tokens=MAX_TOKENS).encode(
        "Čaj \U0001f9ff"
    )
