"""A port on which a process says how it is: ``/metrics`` for Prometheus, ``/health`` and ``/ready`` for supervisors.

``/healthz`` and ``/readyz`` are the same. It tells figures and names of processes and pools, nothing of any workflow.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import urlsplit

import msgspec
import structlog
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from tidewheel_services.figures import Figure, Source

_CLIENT_S_MAX = 10.0
_AGAIN_S = 1.0

_log = structlog.get_logger("tidewheel")


class CannotExpose(Exception):
    """The port cannot be had; the message says why and what to do."""


class _Starting:
    def figures(self) -> Iterable[Figure]:
        return ()

    def fault(self) -> str:
        return "starting: the log has not been reached yet"


class Exposition:
    """Serves until closed; what it shows is set by ``show``."""

    def __init__(self, host: str, port: int) -> None:
        """Raises ``CannotExpose``."""
        self._source: Source = _Starting()
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        PlatformCollector(registry=registry)
        registry.register(_Collector(self))
        try:
            self._server = _Server((host, port), _handler(self, registry))
        except (OSError, OverflowError) as error:
            raise CannotExpose(_why(error, host, port)) from error
        self._closing = threading.Event()
        threading.Thread(target=self._serve, name="metrics", daemon=True).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    @property
    def source(self) -> Source:
        """What is shown now."""
        return self._source

    def show(self, source: Source) -> None:
        """Show this from now on."""
        self._source = source

    def close(self) -> None:
        """Let the port go."""
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()

    def _serve(self) -> None:
        while True:
            try:
                self._server.serve_forever()
            except Exception:
                _log.exception("the metrics' port cannot be served; trying again", url=self.url, in_s=_AGAIN_S)
                if not self._closing.wait(_AGAIN_S):
                    continue
            # Not asked before: closing waits for this call, also if that begins last.
            return

    def __enter__(self) -> Exposition:
        """Itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close."""
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    #: A restarted process gets its port at once.
    allow_reuse_address = True


class _Collector(Collector):
    def __init__(self, exposition: Exposition) -> None:
        self._exposition = exposition

    def collect(self) -> Iterable[Metric]:
        """Asked at each scrape."""
        source = self._exposition.source
        yield GaugeMetricFamily("tidewheel_ready", "1 if the process can do its work", 0 if source.fault() else 1)
        for shown in source.figures():
            labels = list(shown.values[0][0]) if shown.values else []
            kind = CounterMetricFamily if shown.kind == "counter" else GaugeMetricFamily
            family = kind(f"tidewheel_{shown.name}", shown.meaning, labels=labels)
            for named, value in shown.values:
                family.add_metric(list(named.values()), value)
            yield family


def _handler(exposition: Exposition, registry: CollectorRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _CLIENT_S_MAX
        server_version = "tidewheel"
        sys_version = ""

        def do_GET(self) -> None:
            match urlsplit(self.path).path:
                case "/metrics":
                    encode, media_type = choose_encoder(self.headers.get("Accept", ""))
                    self._answer(200, encode(registry), media_type)
                case "/health" | "/healthz":
                    self._answer(200, b'{"status":"ok"}')
                case "/ready" | "/readyz":
                    fault = exposition.source.fault()
                    document = {"status": "not ready", "why": fault} if fault else {"status": "ready"}
                    self._answer(503 if fault else 200, msgspec.json.encode(document))
                case _:
                    self._answer(404, b'{"detail":"there are /metrics, /health and /ready"}')

        def _answer(self, status: int, body: bytes, media_type: str = "application/json") -> None:
            self.send_response(status)
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(body)))
            if status == 503:
                self.send_header("Retry-After", "2")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name is the library's)
            """Scrapes come every few seconds: not worth a line."""

    return Handler


def _why(error: Exception, host: str, port: int) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use already; choose another with --metrics-port"
    return f"cannot serve metrics on {host} port {port}: {error}"
