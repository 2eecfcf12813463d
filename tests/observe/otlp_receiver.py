"""A receiver of OTLP over HTTP on loopback."""

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Receiver:
    """Takes OTLP over HTTP, and keeps what it was sent."""

    def __init__(self):
        self.spans, self.metrics, receiver = [], [], self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                if self.path.endswith("/traces"):
                    sent = ExportTraceServiceRequest.FromString(body).resource_spans
                    receiver.spans += [span for one in sent for scope in one.scope_spans for span in scope.spans]
                else:
                    told = ExportMetricsServiceRequest.FromString(body).resource_metrics
                    receiver.metrics += [one for many in told for scope in many.scope_metrics for one in scope.metrics]
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def named(self, name):
        return [span for span in self.spans if span.name == name]

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def facts(span):
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}
