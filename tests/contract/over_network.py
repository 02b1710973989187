"""The broker behind a socket as a way of running: a server on a loopback port, in the same loop.

Time stands still while bytes are on their way, so that what a test calls settled is settled on both
sides of the socket.
"""

from __future__ import annotations

import asyncio
import atexit
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import flintmq
from flintmq.access import PERMISSIONS, TopicGrant
from flintmq.broker_api import BrokerApi
from flintmq.engine.broker import Broker
from flintmq.net.remote.broker import RemoteBroker
from flintmq.net.server.gate import ApiKeyGate, gate_of
from flintmq.net.server.native import NativeServer
from flintmq.net.server.tls import ServerTls
from flintmq.storage.key_file import KeyFile, make_key
from flintmq.testing import ManualClock

from ..tls.throw_away import Authority, Pair

_OBJECTS = "objects are passed by reference, inside one process"
_NOWAIT = "what is there right now is what has come; the first look only asks for it"
_TURNS = "it speaks of what happens within one turn of the loop, at the broker"
_FUNCTION = "a function cannot travel; over the network a filter must be an expression"
NOT_OF_NETWORKS = {
    "test_objects.py": _OBJECTS,
    "test_read_nowait_returns_none_when_there_is_nothing": _NOWAIT,
    "test_a_filtered_reader_gets_what_passes": _FUNCTION,
    "test_a_filter_sees_everything_of_a_message": _FUNCTION,
    "test_what_a_filter_rejects_is_there_for_other_readers": _FUNCTION,
    "test_a_limit_counts_what_passes_and_loses_nothing_between_calls": _FUNCTION,
    "test_a_filtered_read_waits_for_what_passes": _FUNCTION,
    "test_a_rare_match_is_found_behind_any_number_of_others": _FUNCTION,
    "test_a_filter_that_raises_is_heard_of_and_the_reader_goes_on_behind": _FUNCTION,
    "test_expired_messages_are_not_shown_to_a_filter": _FUNCTION,
    "test_the_filter_belongs_to_the_name": _FUNCTION,
    "test_a_filtered_reader_is_told_of_gaps": _FUNCTION,
    "test_a_filter_that_raises_in_one_partition_loses_nothing_of_the_others": _FUNCTION,
    "test_objects_are_passed_through_partitions_by_reference": _OBJECTS,
    "test_topics_of_objects_cannot_be_staged_for": _OBJECTS,
    "test_everything_that_makes_room_wakes_the_publisher": _FUNCTION,
    "test_a_cancelled_blocked_publish_publishes_nothing_and_lets_the_next_go_on": _TURNS,
    "test_a_full_partition_holds_up_its_own_publishers_only": _TURNS,
    "test_what_was_sent_is_published_once_flush_returns": _TURNS,
    "test_a_reader_that_cannot_be_opened_everywhere_is_opened_nowhere": _FUNCTION,
    "test_a_message_a_filter_raises_on_becomes_a_dead_letter": _FUNCTION,
    "test_a_function_may_be_a_filter_of_a_group_in_memory_only": _FUNCTION,
    "test_objects_go_through_groups_by_reference_in_memory": _OBJECTS,
    "test_filters_work_over_partitions[flint-<lambda>]": _FUNCTION,
    "test_filters_work_over_partitions[flint-file-<lambda>]": _FUNCTION,
    "test_filters_work_over_partitions[flint-blocking-<lambda>]": _FUNCTION,
    "test_filters_work_over_partitions[flints-<lambda>]": _FUNCTION,
    "test_filters_work_over_partitions[flint-keys-<lambda>]": _FUNCTION,
}
"""Promises that are made inside a process only, and why."""


def connect_over_network(url: str, **options: Any) -> flintmq.Client:
    clock = options["clock"]
    near = flintmq.connect(url, clock=clock)
    client = flintmq.connect("flint://127.0.0.1:1", **options)
    far = client._broker
    assert isinstance(far, RemoteBroker)
    served = Served(near._broker, far, clock)
    far.open = served.open  # type: ignore[method-assign]
    far.close = served.close  # type: ignore[method-assign]
    return client


def connect_over_tls(url: str, **options: Any) -> flintmq.Client:
    """The same with every byte encrypted."""
    authority, pair = throw_away()
    near = flintmq.connect(url, clock=options["clock"])
    client = flintmq.connect("flints://127.0.0.1:1", tls_ca=authority.file, **options)
    far = client._broker
    assert isinstance(far, RemoteBroker)
    served = Served(near._broker, far, options["clock"], ServerTls(pair.cert, pair.key))
    far.open = served.open  # type: ignore[method-assign]
    far.close = served.close  # type: ignore[method-assign]
    return client


def connect_with_key(url: str, **options: Any) -> flintmq.Client:
    """The same at a broker that asks for keys; ours may do everything."""
    file, key = keys()
    near = flintmq.connect(url, clock=options["clock"])
    client = flintmq.connect("flint://127.0.0.1:1", api_key=key, **options)
    far = client._broker
    assert isinstance(far, RemoteBroker)
    served = Served(near._broker, far, options["clock"], gate=gate_of("required", file))
    far.open = served.open  # type: ignore[method-assign]
    far.close = served.close  # type: ignore[method-assign]
    return client


@cache
def keys() -> tuple[Path, str]:
    directory = Path(mkdtemp(prefix="flintmq-keys-"))
    atexit.register(shutil.rmtree, directory)
    entry, key = make_key(
        "contract", [TopicGrant.of(">", PERMISSIONS)], now_ms=0, expires_at_ms=None
    )
    KeyFile(directory / "keys.json").add(entry)
    return directory / "keys.json", key


@cache
def throw_away() -> tuple[Authority, Pair]:
    directory = Path(mkdtemp(prefix="flintmq-tls-"))
    atexit.register(shutil.rmtree, directory)
    authority = Authority(directory)
    return authority, authority.pair()


class Served:
    """A broker, its server, and the one client of it."""

    def __init__(
        self,
        broker: BrokerApi,
        far: RemoteBroker,
        clock: ManualClock,
        tls: ServerTls | None = None,
        gate: ApiKeyGate | None = None,
    ) -> None:
        self._broker, self._far = broker, far
        self._server = NativeServer(broker, tls=tls, gate=gate)
        self._open, self._close = far.open, far.close
        self._opened = False
        clock.wait_also_for(self.settled)

    async def open(self) -> None:
        await self._broker.open()
        self._opened = True
        self._far.link.dialer.addresses = [await self._server.start("127.0.0.1", 0)]
        await self._open()

    async def close(self) -> None:
        await self._close()
        if self._opened:
            self._opened = False
            await self._server.close()
            await self._broker.close()

    async def settled(self) -> bool:
        """Let bytes arrive; whether there were any on their way."""
        if not self._opened:
            return False
        waited = False
        quiet = 0
        while quiet < 3:  # what a thread has done may show only in the next turn
            quiet += 1
            while self._is_in_flight():
                waited, quiet = True, 0
                await asyncio.sleep(0)
            if isinstance(self._broker, Broker) and await self._broker.settled():
                waited, quiet = True, 0
            await asyncio.sleep(0)
        return waited

    def _is_in_flight(self) -> bool:
        ours = self._far.link._connection
        theirs = list(self._server.connections)
        if ours is None or len(theirs) != 1:
            return False
        return bool(
            ours._out
            or theirs[0]._out
            or ours.bytes_sent != theirs[0].bytes_received
            or theirs[0].bytes_sent != ours.bytes_received
        )
