"""What the commands share that change a cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..cluster_model import ClusterStatus, ClusterVerb
from ..net.remote.broker import RemoteBroker
from ..net.remote.tls import ClientTls
from .connecting import Target, run_async
from .shared import show

STATUS_SECONDS = 5.0

T = TypeVar("T")


def ask_cluster(
    target: Target, verb: ClusterVerb, name: str = "", address: str = ""
) -> ClusterStatus:
    """Ask whoever leads."""
    return ask_broker(target, lambda broker: broker.cluster(verb, name, address))


def ask_broker(target: Target, ask: Callable[[RemoteBroker], Awaitable[T]]) -> T:
    return run_async(asked(target, ask))


async def asked(target: Target, ask: Callable[[RemoteBroker], Awaitable[T]]) -> T:
    broker = remote(target, target.url)
    try:
        await broker.open()
        return await ask(broker)
    finally:
        await broker.close()


async def cluster_now(target: Target) -> ClusterStatus:
    """As whoever leads knows it; where nobody leads, as the node that was asked."""
    broker = remote(target, target.url, timeout=STATUS_SECONDS)
    broker.link.dialer.follows = False
    try:
        await broker.open()
        return await broker.cluster("status")
    finally:
        await broker.close()


def remote(target: Target, url: str, *, timeout: float | None = 30.0) -> RemoteBroker:
    keywords = target.keywords
    tls = None
    if url.startswith("flints://"):
        tls = ClientTls.given(
            ca=keywords.get("tls_ca"),
            cert=keywords.get("tls_cert"),
            key=keywords.get("tls_key"),
            verify=True,
        )
    return RemoteBroker(url, timeout=timeout, api_key=keywords.get("api_key"), tls=tls)


def tell(output: str, status: ClusterStatus, text: str) -> int:
    """The new status as JSON, or a sentence."""
    show(output, status, lambda: print(text))
    return 0
