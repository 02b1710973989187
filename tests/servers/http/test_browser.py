"""A real browser: Debian's chromium holds streams through a restart of the broker.

The page comes from another origin, which the broker is told to allow.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from flintmq.access import TopicGrant
from flintmq.storage.key_file import KEYS_FILE, KeyFile, make_key
from tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.slow

CHROMIUM = shutil.which("chromium")
PAGE = """
<script type="module">
  window.seen = { source: [], sse: [], ws: [], group: [] };
  const source = new EventSource("BROKER/api/v1/topics/orders/stream?start=earliest");
  source.onmessage = ({ data }) => window.seen.source.push(JSON.parse(data).value);
  import { connect } from "BROKER/flintmq.js";
  const mq = connect();
  for (const transport of ["sse", "ws"])
    (async () => {
      for await (const message of mq.subscribe("orders", { start: "earliest", transport }))
        window.seen[transport].push(message.text());
    })();
  (async () => {
    for await (const message of mq.subscribe("orders", { group: "page" }))
      try { await message.ack(); window.seen.group.push(message.text()); } catch { }
  })();
  window.publish = (text) => mq.publish("orders", text);
  window.isThere = true;
</script>
"""


PAGE_WITH_KEYS = """
<script type="module">
  window.seen = { sse: [], ws: [] };
  window.asked = 0;
  import { connect } from "BROKER/flintmq.js";
  const key = async () => { window.asked += 1; return (await fetch("/key")).text(); };
  const mq = connect(undefined, { key });
  for (const transport of ["sse", "ws"])
    (async () => {
      for await (const message of mq.subscribe("orders", { start: "earliest", transport }))
        window.seen[transport].push(message.text());
    })();
  window.publish = (text) => mq.publish("orders", text);
  window.isThere = true;
</script>
"""


class RestartedBroker:
    """`flintmq serve` on ports of its own, which stay the same."""

    def __init__(self, directory: Path, origin: str) -> None:
        self._directory = directory
        self._environment = {**os.environ, "FLINTMQ_HTTP_CORS_ORIGINS": origin}
        with socket.create_server(("127.0.0.1", 0)) as one:
            self.port = one.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "flintmq.cli", "serve", "--data-dir", str(self._directory),
             "--listen", "127.0.0.1:0", "--http", f"127.0.0.1:{self.port}"],
            stdout=subprocess.PIPE, text=True, env=self._environment,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert "ready at " in self._process.stdout.readline()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.communicate(timeout=PATIENCE_SECONDS)

    def publish(self, *values: str) -> None:
        for value in values:
            answer = httpx.post(
                f"{self.url}/api/v1/topics/orders/messages", content=value, timeout=60,
                headers={"content-type": "text/plain"},
            )  # fmt: skip
            assert answer.status_code == 200, answer.text


class PageHandler(BaseHTTPRequestHandler):
    broker = key = ""

    def do_GET(self) -> None:
        page = {"/": PAGE, "/keys": PAGE_WITH_KEYS, "/key": self.key}.get(self.path, "")
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(page.replace("BROKER", self.broker).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[str]:
    """A web site; its origin."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), PageHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def broker(tmp_path: Path, site: str) -> Iterator[RestartedBroker]:
    broker = RestartedBroker(tmp_path, site)
    PageHandler.broker = broker.url
    broker.start()
    made = httpx.put(f"{broker.url}/api/v1/topics/orders", json={}, timeout=60)
    assert made.status_code == 200, made.text
    yield broker
    broker.kill()


@pytest.fixture
def page(broker: RestartedBroker) -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("NOT TESTED IN A BROWSER: chromium is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser.new_page()
        browser.close()


def go(page: Any, url: str) -> None:
    page.goto(url)
    page.wait_for_function("window.isThere", timeout=PATIENCE_SECONDS * 1000)


def wait_for(page: Any, wanted: list[str]) -> None:
    """Until every stream of the page has seen these, each once, in this order."""
    until = time.monotonic() + PATIENCE_SECONDS
    seen: Any = None
    while time.monotonic() < until:
        seen = page.evaluate("window.seen")
        if all(values == wanted for values in seen.values()):
            return
        page.wait_for_timeout(50)
    raise AssertionError(seen)


def test_streams_of_a_page_live_through_a_restart_and_see_everything_once(
    broker: RestartedBroker, page: Any, site: str
) -> None:
    go(page, f"{site}/")
    first = [f"a{number}" for number in range(20)]
    broker.publish(*first)
    wait_for(page, first)

    broker.kill()  # no goodbye
    broker.start()
    second = [f"b{number}" for number in range(20)]
    broker.publish(*second)
    wait_for(page, first + second)

    broker.stop()  # in good order
    broker.start()
    page.evaluate("window.publish('c')")
    wait_for(page, [*first, *second, "c"])


def test_a_page_with_a_key_that_ends_asks_for_the_next_and_goes_on(
    broker: RestartedBroker, page: Any, site: str, tmp_path: Path
) -> None:
    keys = KeyFile(tmp_path / KEYS_FILE)

    def give(name: str) -> None:
        grants = [TopicGrant.of("orders", ["publish", "consume"])]
        key, PageHandler.key = make_key(name, grants, now_ms=0, expires_at_ms=None)
        keys.add(key)

    urls: list[str] = []
    page.on("websocket", lambda socket: urls.append(socket.url))
    page.on("request", lambda request: urls.append(request.url))
    give("first")
    go(page, f"{site}/keys")
    page.evaluate("window.publish('a')")
    wait_for(page, ["a"])

    give("second")
    keys.remove("first")  # streams end with their key, within a second
    page.wait_for_function("window.asked > 1", timeout=PATIENCE_SECONDS * 1000)
    page.evaluate("window.publish('b')")
    wait_for(page, ["a", "b"])
    assert any(url.startswith("ws://") for url in urls)
    assert not any("flint_" in url for url in urls)  # no key in any address
