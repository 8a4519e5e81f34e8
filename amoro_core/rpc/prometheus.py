"""HTTP endpoints for Prometheus and probes, on loopback: /metrics with a token, /livez and /readyz without."""

import threading
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from amoro_core.errors import AddressInUse
from amoro_core.logger import get_logger
from amoro_core.model.metrics import BUCKETS_S, METRICS, MetricKind, Sample
from amoro_core.rpc.server import holder_of

log = get_logger("amoro.scraping")

HOST = "127.0.0.1"
_TIMEOUT_S = 10.0
_FAMILIES = {MetricKind.GAUGE: GaugeMetricFamily, MetricKind.COUNTER: CounterMetricFamily}


def exposed(samples: Sequence[Sample]) -> bytes:
    """The samples in Prometheus's text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Told(samples))
    return generate_latest(registry)


class _Told:
    def __init__(self, samples: Sequence[Sample]) -> None:
        self._samples = samples

    def collect(self) -> Iterable[Metric]:
        told: dict[str, list[Sample]] = {}
        for sample in self._samples:
            told.setdefault(sample.name, []).append(sample)
        for metric in METRICS:
            samples = told.get(metric.name, [])
            if metric.kind is MetricKind.HISTOGRAM:
                yield _durations(metric.name, metric.meaning, metric.labels, samples)
                continue
            family = _FAMILIES[metric.kind](metric.name, metric.meaning, labels=metric.labels)
            for sample in samples:
                family.add_metric(list(sample.labels), sample.value)
            yield family


def _durations(name: str, meaning: str, labels: Sequence[str], samples: Sequence[Sample]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, meaning, labels=labels)
    bounds = [*(f"{bound:g}" for bound in BUCKETS_S), "+Inf"]
    for sample in samples:
        family.add_metric(list(sample.labels), list(zip(bounds, sample.buckets, strict=True)), sample.value)
    return family


class MetricsServer:
    """Serves on a local port until stopped; each request has a thread of its own."""

    def __init__(self, port: int, read: Callable[[], Sequence[Sample]], may_read: Callable[[str], bool]) -> None:
        """Listen, without answering yet. Raises AddressInUse."""
        try:
            self._server = _Server((HOST, port), read, may_read)
        except OSError as error:
            raise AddressInUse(
                f"{HOST}:{port} can't be listened on{holder_of(port) or f': {error.strerror}'}",
                hint="Stop what listens there, or choose another metrics-port (0: none).",
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    def start(self) -> None:
        """Answer from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Stop serving."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], read: Callable[[], Sequence[Sample]], may_read: Callable[[str], bool]
    ) -> None:
        super().__init__(address, _Handler)
        self.read = read
        self.may_read = may_read


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _TIMEOUT_S
    server_version = "amoro"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer one request."""
        match self.path.partition("?")[0]:
            case "/livez" | "/readyz":
                self._answer(HTTPStatus.OK, b"ok\n")
            case "/metrics" if self._is_allowed():
                try:
                    text = exposed(self.server.read())
                except Exception as error:
                    log.exception("scrape.failed", exc_info=error)
                    self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, b"the coordinator's log has more\n")
                else:
                    self._answer(HTTPStatus.OK, text, CONTENT_TYPE_LATEST)
            case "/metrics":
                self._answer(HTTPStatus.UNAUTHORIZED, b"a token with the role viewer is needed\n")
            case _:
                self._answer(HTTPStatus.NOT_FOUND, b"there are /metrics, /livez and /readyz\n")

    def _is_allowed(self) -> bool:
        kind, _, token = self.headers.get("Authorization", "").partition(" ")
        return kind.lower() == "bearer" and self.server.may_read(token.strip())

    def _answer(self, status: HTTPStatus, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Requests are not logged."""
