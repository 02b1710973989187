"""What TLS costs: the same work over flint:// and over flints://, in turns, in one run.

    .venv/bin/python -m benchmarks.tls --seconds 2 --rounds 3

A broker in a process of its own, each time, with or without a throw-away certificate. One table and
one JSON line. The figures are the best of the rounds: what else the machine does only takes away.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trustme

from flintmq.daemon.process import loop_factory

from . import network

CASES: dict[str, network.Work] = {
    "publish_batch of 100, 64 at once": network.publish_more_batches,
    "publisher.send": network.send,
    "await publish, 512 at once": network.single,
    "poll and ack, 256": network.consume,
    "reader, 1000": network.read,
    "live 1:1 in batches": network.live_batches,
    "idle latency, live": network.latency_live,
}


@contextmanager
def certificate() -> Iterator[list[str]]:
    """What a broker is told to speak TLS; clients of this process trust it meanwhile."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        authority = trustme.CA()
        issued = authority.issue_cert("localhost", "127.0.0.1")
        ca, cert, key = directory / "ca.pem", directory / "broker.crt", directory / "broker.key"
        key.touch(0o600)
        authority.cert_pem.write_to_path(ca)
        issued.private_key_pem.write_to_path(key)
        issued.cert_chain_pems[0].write_to_path(cert)
        os.environ["FLINTMQ_TLS_CA"] = str(ca)
        try:
            yield ["--tls-cert", str(cert), "--tls-key", str(key)]
        finally:
            del os.environ["FLINTMQ_TLS_CA"]


def measured(work: network.Work, seconds: float, *arguments: str) -> float:
    with (
        tempfile.TemporaryDirectory() as directory,
        network.broker(directory, *arguments) as url,
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        figures: dict[str, float] = runner.run(work(url, seconds))  # type: ignore[arg-type]
        return next(iter(figures.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    wanted = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    print(f"{'case':36}{'plain':>14}{'TLS':>14}{'ratio':>8}")
    with certificate() as arguments:
        for name, work in CASES.items():
            if wanted.only not in name:
                continue
            plain, secure = [], []
            for _ in range(wanted.rounds):
                plain.append(measured(work, wanted.seconds))
                secure.append(measured(work, wanted.seconds, *arguments))
            best = min if "latency" in name else max
            one, other = best(plain), best(secure)
            figures[name] = {"plain": one, "tls": other, "ratio": other / one}
            shown = [f"{n:,.0f}" if n > 100 else f"{n:.3f}" for n in (one, other)]
            print(f"{name:36}{shown[0]:>14}{shown[1]:>14}{other / one:8.2f}", flush=True)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
