"""The Ollama embedder against a small server on loopback that speaks `/api/embed`."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from handrail.contract.errors import ConfigError
from handrail_reference.services.embeddings import EmbeddingError, ollama, open_embedder
from handrail_reference.services.embeddings.ollama import OllamaEmbedder


class Server(ThreadingHTTPServer):
    """Answers as `reply(texts)` says, or with `status` and `body`; keeps what it was asked."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked = []
        self.status = 200
        self.body = None
        self.headers = {}
        self.patience = threading.Event()
        self.silent = False

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def reply(self, texts):
        return {"model": "m", "embeddings": [[float(len(text)), 3.0, 4.0, 0.0] for text in texts]}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, request))
        if self.server.silent:
            self.server.patience.wait(10)
        body = self.server.body
        if body is None:
            body = json.dumps(self.server.reply(request["input"])).encode()
        self.send_response(self.server.status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.server.asked.append((self.path, None))
        self.send_error(404)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.patience.set()
        server.shutdown()
        thread.join()


def opened(server, **options):
    return OllamaEmbedder(server.url, "all-minilm", **options)


def test_vectors_come_in_order_and_with_length_one(server):
    embedder = open_embedder("ollama", models=Path("nowhere"), ollama_url=server.url, ollama_model="all-minilm")
    vectors = embedder.embed(["", "aaaaa", ""])
    assert vectors.dtype == np.float32
    assert vectors == pytest.approx(np.array([[0, 0.6, 0.8, 0], [0.5**0.5, 0.18**0.5, 0.32**0.5, 0], [0, 0.6, 0.8, 0]]))
    assert (embedder.name, embedder.dimensions) == ("ollama-all-minilm", 4)
    # Asked once, each text once.
    assert server.asked == [("/api/embed", {"model": "all-minilm", "input": ["", "aaaaa"], "truncate": True})]


def test_the_dimensions_are_learned_from_the_server(server):
    embedder = opened(server)
    assert embedder.dimensions == 4
    assert embedder.embed([]).shape == (0, 4)
    assert len(server.asked) == 1


def test_many_texts_go_in_batches(server):
    texts = [f"{'x' * number}" for number in range(150)]
    vectors = opened(server).embed(texts)
    assert [len(request["input"]) for _, request in server.asked] == [64, 64, 22]
    expected = [number / (number**2 + 25) ** 0.5 for number in range(150)]
    assert vectors[:, 0] == pytest.approx(expected, abs=1e-6)


def test_a_question_is_asked_once(server):
    embedder = opened(server)
    assert np.array_equal(embedder.embed(["again"]), embedder.embed(["again"]))
    assert len(server.asked) == 1


def test_half_characters_reach_the_server_as_text(server):
    opened(server).embed(["a\ud83d"])
    assert server.asked[0][1]["input"] == ["a?"]


def test_a_model_that_is_not_pulled_is_named_with_the_command(server):
    server.status, server.body = 404, b'{"error":"model not found"}'
    with pytest.raises(EmbeddingError, match='has no model "all-minilm"; fetch it with `ollama pull all-minilm`'):
        opened(server).embed(["x"])


def test_a_failing_server_is_one_sentence(server):
    server.status, server.body = 500, b"<html>secret stack trace</html>"
    with pytest.raises(EmbeddingError, match=r"refused to embed .*\(HTTP 500\)") as raised:
        opened(server).embed(["x"])
    assert "secret" not in str(raised.value)


def test_a_redirect_is_not_followed(server):
    server.status, server.body, server.headers = 302, b"", {"Location": f"{server.url}/elsewhere"}
    with pytest.raises(EmbeddingError, match="HTTP 302"):
        opened(server).embed(["x"])
    assert [path for path, _ in server.asked] == ["/api/embed"]


def test_a_silent_server_is_left_after_a_time(server):
    server.silent = True
    with pytest.raises(EmbeddingError, match=r"does not answer \(timed out\)"):
        opened(server, timeout=0.05).embed(["x"])


def test_a_question_is_waited_for_less_long_than_documents(server, monkeypatch):
    monkeypatch.setattr(ollama, "_QUERY_TIMEOUT_SECONDS", 0.05)
    server.silent = True
    with pytest.raises(EmbeddingError, match="timed out"):
        opened(server).embed(["a question"])
    later = threading.Timer(0.3, server.patience.set)
    later.start()
    assert opened(server).embed(["one document", "another"]).shape == (2, 4)
    later.join()


def test_no_server_is_one_sentence(server):
    server.shutdown()
    server.server_close()
    with pytest.raises(EmbeddingError, match=r"does not answer \(.*\); start it with `ollama serve`"):
        opened(server).embed(["x"])


BAD_ANSWERS = {
    "no JSON": b"not json",
    "empty": b"",
    "a list": b"[]",
    "no vectors": b"{}",
    "too few": b'{"embeddings": []}',
    "too many": b'{"embeddings": [[1, 2], [3, 4]]}',
    "no numbers": b'{"embeddings": [["a", "b"]]}',
    "null": b'{"embeddings": [null]}',
    "not a number": b'{"embeddings": [[NaN, 1]]}',
    "endless": b'{"embeddings": [[1e308, 1e308, 1]]}',
    "all zero": b'{"embeddings": [[0, 0]]}',
    "no dimensions": b'{"embeddings": [[]]}',
    "flat": b'{"embeddings": [1, 2]}',
    "deep": b'{"embeddings": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
}


@pytest.mark.parametrize("name", BAD_ANSWERS)
def test_an_answer_without_usable_vectors_is_one_sentence(server, name):
    server.body = BAD_ANSWERS[name]
    with pytest.raises(EmbeddingError, match='gave no usable vectors for "all-minilm"'):
        opened(server).embed(["x"])


def test_a_model_that_was_exchanged_is_noticed(server):
    embedder = opened(server)
    embedder.embed(["x"])
    server.body = b'{"embeddings": [[1, 2]]}'
    with pytest.raises(EmbeddingError, match="changed from 4 to 2 dimensions"):
        embedder.embed(["y"])


@pytest.mark.parametrize("url", ["", "localhost:11434", "ftp://127.0.0.1", "http://", "file:///etc/passwd"])
def test_an_address_that_is_none_is_named(url):
    with pytest.raises(ConfigError, match="no address of an Ollama server"):
        OllamaEmbedder(url, "all-minilm")


def test_a_model_must_be_named():
    with pytest.raises(ConfigError, match="name of the Ollama model is empty"):
        OllamaEmbedder("http://127.0.0.1:11434", "")
