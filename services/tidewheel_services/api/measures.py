"""Metrics for Prometheus: requests by route and status, and how far the read model and the schedulers are behind the
log.
"""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidewheel.log.interface import TRIGGERS
from tidewheel_services.api.lag import Lag

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Measures:
    """The metrics of one application, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        labels = ("method", "route")
        self.requests = Counter(
            "tidewheel_api_requests", "Requests answered", (*labels, "status"), registry=self.registry
        )
        self.seconds = Histogram(
            "tidewheel_api_request_seconds", "Time to answer", labels, registry=self.registry, buckets=_BUCKETS
        )
        self.projection_lag = Gauge(
            "tidewheel_projection_lag_records",
            "Journal records the read model has not taken in",
            ("topic", "partition"),
            registry=self.registry,
        )
        self.input_lag = Gauge(
            "tidewheel_input_lag_records",
            "Input records no scheduler has committed",
            ("topic", "partition"),
            registry=self.registry,
        )
        self.paused = Gauge(
            "tidewheel_triggers_paused",
            "1 while a full shard reads no triggers",
            ("partition",),
            registry=self.registry,
        )
        self.postponed = Gauge(
            "tidewheel_triggers_postponed_dags",
            "DAGs whose triggers wait because too many of their runs do",
            ("partition",),
            registry=self.registry,
        )
        self.stopped_shards = Gauge(
            "tidewheel_shards_stopped",
            "Shards that stand still because their journal does not prove itself",
            registry=self.registry,
        )
        self.lag_known = Gauge(
            "tidewheel_lag_known", "1 if log and read model could be asked for the lag", registry=self.registry
        )

    def set_lag(self, lag: Lag | None) -> None:
        """Note the lag; None: it could not be measured, and the last figures must not stand."""
        self.lag_known.set(0 if lag is None else 1)
        self.projection_lag.clear()
        self.input_lag.clear()
        self.paused.clear()
        self.postponed.clear()
        self.stopped_shards.set(0 if lag is None else len(lag.stopped_shards))
        if lag is not None:
            for journal in lag.journals:
                self.projection_lag.labels(journal.topic, str(journal.partition)).set(journal.lag)
            for entry in lag.inputs:
                self.input_lag.labels(entry.topic, str(entry.partition)).set(entry.lag)
                if entry.topic == TRIGGERS:
                    self.paused.labels(str(entry.partition)).set(entry.paused)
                    self.postponed.labels(str(entry.partition)).set(len(entry.postponed))

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)


class Measured:
    """ASGI middleware: counts and times each request under its route's template, so that ids make no new series."""

    def __init__(self, app: ASGIApp, measures: Measures) -> None:
        self._app = app
        self._measures = measures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, and note the outcome."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._measures.requests.labels(method, route, str(status)).inc()
            self._measures.seconds.labels(method, route).observe(time.perf_counter() - started)


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
