"""A service between a client and a real one, which passes requests on until it is told to misbehave."""

import http.client
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HTML = b"<!doctype html><html><body><h1>Welcome to the guest network</h1></body></html>"


class BadProxy:
    """`next_answers` are the faults of coming requests, by method; None in the list passes one on."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}/"
        self.faults: list[tuple[str, Callable[[Any, Callable[[], Any]], None] | None]] = []
        self.requests: list[tuple[str, str, Mapping[str, str]]] = []
        self.headers: dict[str, str] = {}
        self.released = threading.Event()
        self.on_step: Callable[[], None] = lambda: None
        """Called when a request has come, and when it was carried out and before it is answered."""

    def plan(self, method: str, *faults: Any) -> None:
        """The next requests of this method are answered by these faults, in order."""
        self.faults += [(method, fault) for fault in faults]

    def fault_of(self, method: str) -> Any:
        for place, (name, fault) in enumerate(self.faults):
            if name == method:
                del self.faults[place]
                return fault
        return None


def status(code: int, text: bytes = b"", **headers: str) -> Any:
    """Answer so, and pass nothing on."""

    def answer(handler: Any, forward: Any) -> None:
        handler.reply(code, {name.replace("_", "-"): value for name, value in headers.items()}, text)

    return answer


def done_then(code: int, text: bytes = b"", **headers: str) -> Any:
    """The service did it, and the answer is another."""

    def answer(handler: Any, forward: Any) -> None:
        forward()
        status(code, text, **headers)(handler, forward)

    answer.__name__ = f"done_then_{code}"
    return answer


def broken_body(code: int) -> Any:
    """A status whose text breaks off within a chunk, and nothing was done."""

    def answer(handler: Any, forward: Any) -> None:
        handler.send_response(code)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(b"ff\r\nabc")
        handler.wfile.flush()
        handler.hang_up()

    answer.__name__ = f"broken_body_{code}"
    return answer


def html(handler: Any, forward: Any) -> None:
    handler.reply(200, {"Content-Type": "text/html"}, HTML)


def closed_before(handler: Any, forward: Any) -> None:
    """The connection ends, and the service has seen nothing."""
    handler.hang_up()


def closed_after(handler: Any, forward: Any) -> None:
    """The service did it, and the answer is lost."""
    forward()
    handler.hang_up()


def cut_short(handler: Any, forward: Any) -> None:
    """The service did it, and half of the answer arrives."""
    code, _, body = forward()
    handler.send_response(code)
    handler.send_header("Content-Length", str(len(body) + 1_000))
    handler.end_headers()
    handler.wfile.write(body[: len(body) // 2])
    handler.wfile.flush()
    handler.hang_up()


def slow(handler: Any, forward: Any) -> None:
    """The service never answers in time."""
    handler.proxy.released.wait(30)
    handler.hang_up()


def slow_after(handler: Any, forward: Any) -> None:
    """The service did it, and takes too long to say so."""
    forward()
    slow(handler, forward)


@contextmanager
def bad_proxy(port: int) -> Iterator[BadProxy]:
    """In front of the service on this port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except (OSError, ValueError):
                self.close_connection = True

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            proxy.requests.append((self.command, self.path, dict(self.headers)))
            self.proxy = proxy

            def forward() -> tuple[int, dict[str, str], bytes]:
                upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                try:
                    headers = {key: value for key, value in self.headers.items() if key.lower() != "accept-encoding"}
                    upstream.request(self.command, self.path, body, headers)
                    answer = upstream.getresponse()
                    return answer.status, dict(answer.getheaders()), answer.read()
                finally:
                    upstream.close()

            fault = proxy.fault_of(self.command)
            if fault is not None:
                fault(self, forward)
                return
            proxy.on_step()
            code, headers, text = forward()
            proxy.on_step()
            self.reply(code, headers, text)

        def reply(self, code: int, headers: Mapping[str, str], text: bytes) -> None:
            self.send_response(code)
            for name, value in {**headers, **(proxy.headers if self.command == "OPTIONS" else {})}.items():
                if name.lower() not in ("content-length", "transfer-encoding", "date", "server", "connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def hang_up(self) -> None:
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

        def __getattr__(self, name: str) -> Any:
            if name.startswith("do_"):
                return self._serve
            raise AttributeError(name)

        def log_message(self, *words: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    proxy = BadProxy(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield proxy
    finally:
        proxy.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
