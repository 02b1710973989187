"""A broker with something of everything in it, for the tests of the console and its pictures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.patience import PATIENCE_SECONDS

HOSTILE = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>\u202egnp.exe\u0007"
"""Markup, a script, and a character that turns the text behind it."""


class ConsoleBroker:
    """`flintmq serve` in a process of its own, asked over HTTP."""

    def __init__(self, url: str, flint: str, key: str | None = None) -> None:
        self.url, self.flint = url, flint
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        self.http = httpx.Client(base_url=f"{url}/api/v1", timeout=60, headers=headers)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        options: dict[str, Any] = (
            {} if method in ("GET", "DELETE") else {"json": {} if body is None else body}
        )
        answer = self.http.request(method, path, **options)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def publish(self, topic: str, messages: list[dict[str, Any]]) -> None:
        self.ask("POST", f"/topics/{topic}/messages", messages)

    def kill_letters(self, topic: str, group: str, reasons: list[str]) -> None:
        """Take a message for each reason, and give it up."""
        for reason in reasons:
            poll = f"/topics/{topic}/groups/{group}/poll"
            (message,) = self.ask("POST", poll, {"wait": 5, "max": 1})["messages"]
            settle = {"leases": [message["lease"]], "reason": reason}
            self.ask("POST", f"/topics/{topic}/groups/{group}/reject", settle)


@contextmanager
def console_broker(directory: Path, *options: str) -> Iterator[ConsoleBroker]:
    command = [sys.executable, "-m", "flintmq.cli", "serve", "--data-dir", str(directory)]
    local = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--drain-seconds", "0.1"]
    environment = {**os.environ, "FLINTMQ_HTTP_CPU_SHARE": "0.8"}
    with subprocess.Popen(
        [*command, *local, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert "ready at " in line, line
            flint, url = line.split("ready at ")[1].split(", ")[:2]
            assert process.stdout.readline() == f"flintmq: console at {url}/\n"
            broker = ConsoleBroker(url, flint)
            yield broker
            broker.http.close()
        finally:
            process.terminate()
            process.wait(60)


@contextmanager
def console_cluster(directory: Path) -> Iterator[list[ConsoleBroker]]:
    """Three nodes of a cluster; of each its page."""
    run = ["cluster", "run", "--base-port", "0", "--data-dir", str(directory)]
    with subprocess.Popen(
        [sys.executable, "-m", "flintmq.cli", *run],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "FLINTMQ_HTTP_CPU_SHARE": "0.8"},
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert "3 nodes are ready at " in line, line
            plan = json.loads((directory / "cluster.json").read_text())["nodes"]
            nodes = [
                ConsoleBroker(
                    f"http://127.0.0.1:{one['http']}", f"flint://127.0.0.1:{one['clients']}"
                )
                for one in plan
            ]
            yield nodes
            for node in nodes:
                node.http.close()
        finally:
            process.terminate()
            process.wait(60)


def wait_for_leader(node: ConsoleBroker) -> str:
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        leader = node.ask("GET", "/cluster")["leader"]
        if leader is not None:
            return str(leader)
        assert time.monotonic() < until


def furnish(broker: ConsoleBroker) -> None:
    broker.ask("PUT", "/topics/payments", {"partitions": 3, "max_deliveries": 3})
    broker.ask("PUT", "/topics/sensors", {"storage": "memory", "retention_count": 10000})
    for name in ("orders.eu", "orders.us", "invoices", "emails", "audit.log", "clicks"):
        broker.ask("PUT", f"/topics/{name}")
    broker.publish(
        "orders",
        [
            {"json": {"id": number, "total": number * 7 % 400, "customer": f"c-{number % 17}",
                      "lines": [{"sku": "flint-1", "count": 2}]},
             "key": f"c-{number % 17}", "headers": {"region": "eu" if number % 3 else "us"},
             "priority": number % 4}
            for number in range(120)
        ],
    )  # fmt: skip
    broker.publish("payments", [{"json": {"id": n}, "key": str(n)} for n in range(40)])
    broker.publish("sensors", [{"text": f"{n}", "ttl": 3600} for n in range(300)])
    broker.publish("emails", [{"text": HOSTILE, "key": HOSTILE, "headers": {"subject": HOSTILE}}])
    # {"a": 1} in MessagePack
    broker.publish("clicks", [{"base64": "gaFhAQ==", "content_type": "application/msgpack"}])
    reasons = ["no address"] * 3 + ["ValueError: total is not a number", HOSTILE, "timeout"]
    broker.kill_letters("orders", "billing", reasons)
    broker.ask("POST", "/topics/orders/groups/billing/poll", {"max": 4, "lease": 600})
    broker.ask("POST", "/topics/payments/groups/ledger/poll", {"max": 2, "lease": 600, "wait": 2})
    broker.ask(
        "PUT", "/topics/invoices/groups/crm/webhook", {"url": "https://crm.example/hooks/invoices"}
    )
