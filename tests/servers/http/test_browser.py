"""A real browser: Debian's chromium holds streams through a restart of the broker."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.slow

CHROMIUM = shutil.which("chromium")
PAGE = """
<script type="module">
  window.seen = { source: [], sse: [], ws: [], group: [] };
  const source = new EventSource("/api/v1/topics/orders/stream?start=earliest");
  source.onmessage = ({ data }) => window.seen.source.push(JSON.parse(data).value);
  import { connect } from "/flintmq.js";
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


class RestartedBroker:
    """`flintmq serve` on ports of its own, which stay the same."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        with socket.create_server(("127.0.0.1", 0)) as one:
            self.port = one.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "flintmq.cli", "serve", "--data-dir", str(self._directory),
             "--listen", "127.0.0.1:0", "--http", f"127.0.0.1:{self.port}"],
            stdout=subprocess.PIPE, text=True,
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


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RestartedBroker]:
    broker = RestartedBroker(tmp_path)
    broker.start()
    made = httpx.put(f"{broker.url}/api/v1/topics/orders", json={}, timeout=60)
    assert made.status_code == 200, made.text
    yield broker
    broker.kill()


@pytest.fixture
def page(broker: RestartedBroker) -> Iterator[Any]:
    """A page whose origin is the broker's own."""
    if CHROMIUM is None:
        pytest.skip("NOT TESTED IN A BROWSER: chromium is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        headers = {"content-type": "text/html"}
        page.route("**/page", lambda route: route.fulfill(body=PAGE, headers=headers))
        page.goto(f"{broker.url}/page")
        page.wait_for_function("window.isThere", timeout=PATIENCE_SECONDS * 1000)
        yield page
        browser.close()


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
    broker: RestartedBroker, page: Any
) -> None:
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
