"""The figures of running pipelines as a page for Prometheus, served by a thread."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ...config.kinds import Address, HostPort, UnfitValue, shown_address
from ...errors import InvalidRequest
from .watching import FlowProgress

PORT = 7690
TEXT = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]
FAMILIES: dict[str, tuple[str, str]] = {
    "up": ("gauge", "1 while a pipeline runs, 0 when it has ended or waits to be restarted"),
    "restarts_total": ("counter", "restarts after a failure"),
    "batches_total": ("counter", "micro-batches"),
    "rows_in_total": ("counter", "rows read"),
    "rows_out_total": ("counter", "rows written"),
    "expectations_broken_total": ("counter", "rows for which a rule did not hold"),
    "batch_seconds": ("gauge", "duration of the last micro-batch"),
    "batch_end_timestamp_seconds": ("gauge", "when the last micro-batch ended"),
    "lag": ("gauge", "messages that are not read yet"),
    "state_rows": ("gauge", "rows that windows, joins and so on keep"),
    "state_bytes": ("gauge", "their size"),
}


class PipelineMetrics:
    """Takes what runs report, and shows it. Called from several threads."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._counters: Counter[tuple[str, Labels]] = Counter()
        self._gauges: dict[tuple[str, Labels], float] = {}

    def began(self, pipeline: str) -> None:
        self._set("up", (("pipeline", pipeline),), 1)

    def ended(self, pipeline: str) -> None:
        self._set("up", (("pipeline", pipeline),), 0)

    def restarted(self, pipeline: str) -> None:
        with self._lock:
            self._counters["restarts_total", (("pipeline", pipeline),)] += 1

    def progress(self, pipeline: str, progress: FlowProgress) -> None:
        """A micro-batch is done."""
        labels: Labels = (("pipeline", pipeline), ("flow", progress.flow))
        with self._lock:
            self._counters["batches_total", labels] += 1
            self._counters["rows_in_total", labels] += progress.rows_in
            self._counters["rows_out_total", labels] += progress.rows_out
            for rule, count in progress.broken.items():
                self._counters["expectations_broken_total", (*labels, ("rule", rule))] += count
        self._set("batch_seconds", labels, progress.seconds)
        self._set("batch_end_timestamp_seconds", labels, self._now())
        for name in ("lag", "state_rows", "state_bytes"):
            if (value := getattr(progress, name)) is not None:
                self._set(name, labels, value)

    def _set(self, name: str, labels: Labels, value: float) -> None:
        with self._lock:
            self._gauges[name, labels] = value

    def page(self) -> str:
        """The page, in Prometheus' text format."""
        with self._lock:
            values = {**self._counters, **self._gauges}
        lines = []
        for name, (kind, about) in FAMILIES.items():
            found = {labels: value for (family, labels), value in values.items() if family == name}
            if not found:
                continue
            full = f"flintmq_pipeline_{name}"
            lines += [f"# HELP {full} {about}", f"# TYPE {full} {kind}"]
            for labels, value in found.items():
                written = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
                lines.append(f"{full}{{{written}}} {value:.15g}")
        return "".join(f"{line}\n" for line in lines)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@contextmanager
def served(metrics: PipelineMetrics, address: str) -> Iterator[str]:
    """Serve the page at http://HOST:PORT/metrics; gives the address, with the port it got."""
    try:
        place: Address = HostPort(PORT).parse(address)
    except UnfitValue as error:
        raise InvalidRequest(f"--metrics must be {error}, not {address!r}") from None

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404, "the figures are at /metrics")
                return
            page = metrics.page().encode()
            self.send_response(200)
            self.send_header("Content-Type", TEXT)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *args: object) -> None:
            pass

    try:
        server = ThreadingHTTPServer(place, Handler)
    except OSError as error:
        raise InvalidRequest(f"--metrics: cannot listen on {address}: {error.strerror}") from None
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="flintmq-metrics", daemon=True)
    thread.start()
    try:
        yield shown_address((place[0], server.server_address[1]))
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
