"""Three nodes behind sockets, whose leader is stopped at a random moment of every test.

The client knows all three, and goes where the leader is. After how many turns of the event loop
the leader is stopped follows from the name of the test and from a number; what happens in those
turns depends on the machine. So this way runs on request, with as many numbers as there is time
for:

    FLINTMQ_STOPS=1 pytest tests/contract --effort all -n 2 -k cluster-stops
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import msgspec

import flintmq
from flintmq.cluster.node import ClusterNode
from flintmq.cluster.shard_host import RECLAIM_SECONDS
from flintmq.errors import Closed, NotLeader
from flintmq.net.remote.broker import RemoteBroker
from flintmq.net.server.native import NativeServer
from flintmq.net.wire.frames import Frame
from flintmq.net.wire.operations import OPERATIONS, ClusterMap, MapGroup, Op, TakeLeasedRequest
from flintmq.serde.codec import Codec
from flintmq.testing import ManualClock

from .over_cluster import ContractCluster

STOPS = "FLINTMQ_STOPS"
TURNS = (1, 600)
"""After how many turns of the event loop the leader is stopped, at least and at most. Most tests
take a few hundred."""
STUCK_SECONDS = 20.0
"""A test may wait for a message that was granted by the leader that is gone, in an answer that
nobody heard. That one is kept for its grace time by the clock of the test, which stands still."""

_LIVE = "a live feed begins anew with another leader, and QoS 0 is sent at most once"
_FIGURES = "figures are counted by who leads, and begin anew with another"
_WHOSE = "whose turn it is among those of equal right begins anew with another leader"
_AGAIN = "the first answer was lost; the second one says that it was there already"
_RATE = "a rate begins anew with another leader"
_GRACE = (
    "what was granted and lost on its way is kept for whoever has it until the grace time is over"
)
_ROOM = "how long a publish waits for room begins anew with another leader"
NOT_WITH_STOPS = {
    "test_live.py": _LIVE,
    "test_patterns.py": _LIVE,
    "test_the_same_holds_for_a_feed": _LIVE,
    "test_publish_many_at_qos_0_stores_nothing": _LIVE,
    "test_sending_at_qos_0_reaches_live_feeds_only": _LIVE,
    "test_a_delay_takes_as_long_for_live_feeds": _LIVE,
    "test_a_live_feed_decodes_as_a_reader_does": _LIVE,
    "test_a_feed_gets_what_goes_to_any_partition": _LIVE,
    "test_filters_work_over_partitions": _LIVE,
    "test_live_feeds_hear_of_a_commit": _LIVE,
    "test_what_drop_new_drops_does_not_reach_live_feeds_either": _LIVE,
    "test_a_feed_is_read_without_waiting": _LIVE,
    "test_a_live_feed_gets_the_objects_themselves": _LIVE,
    "test_a_pattern_sees_partitioned_and_plain_topics_alike": _LIVE,
    "test_a_feed_that_is_full_refuses_in_any_partition": _LIVE,
    "test_a_delayed_message_reaches_feeds_when_it_is_due": _LIVE,
    "test_deleting_ends_readers_feeds_and_publishers_of_every_partition": _LIVE,
    "test_deleting_ends_an_iteration_with_an_error": _LIVE,
    "test_deleting_ends_the_feeds_of_that_topic_and_leaves_those_of_patterns": _LIVE,
    "test_a_feed_hands_out_what_it_has_before_it_ends": _LIVE,
    "test_a_live_feed_replies_to_a_request": _LIVE,
    "test_a_full_feed_minds_only_what_it_wants": _LIVE,
    "test_a_live_feed_is_not_handed_what_expired_in_its_queue": _LIVE,
    "test_a_filter_reckons_with_the_size_for_readers_feeds_and_groups": _LIVE,
    "test_a_delayed_message_that_is_gone_when_due_is_counted": _LIVE,
    "test_expired_messages_leave_the_topic_on_time_with_no_publish_in_between": _FIGURES,
    "test_stats_are_sums_and_each_partition_has_its_own": _FIGURES,
    "test_a_delayed_message_can_be_cancelled_by_its_receipt": _FIGURES,
    "test_limits_hold_for_each_partition": _FIGURES,
    "test_a_batch_larger_than_the_count_keeps_its_tail": _FIGURES,
    "test_by_age_messages_go_on_time_with_no_publish_in_between": _FIGURES,
    "test_bytes_are_a_limit_like_any_other": _FIGURES,
    "test_missed_is_counted_by_name": _FIGURES,
    "test_the_figures_of_a_group_add_up": _FIGURES,
    "test_what_goes_back_goes_to_its_group_alone": _FIGURES,
    "test_a_part_of_every_poll_is_reserved_for_the_oldest": _WHOSE,
    "test_the_low_ones_are_not_starved_by_a_stream_of_high_ones": _WHOSE,
    "test_who_settles_each_message_before_the_next_is_given_several_of_a_key_at_once": _WHOSE,
    "test_what_a_ttl_has_ended_is_counted": _FIGURES,
    "test_what_drop_oldest_took_is_counted": _FIGURES,
    "test_what_every_reader_has_passed_makes_room": _FIGURES,
    "test_drop_new_keeps_what_is_there_and_says_what_it_dropped": _FIGURES,
    "test_reject_refuses_the_whole_publish_at_once": _FIGURES,
    "test_everything_goes_and_the_topic_stays": _FIGURES,
    "test_groups_and_readers_go_on_behind_what_is_gone": _FIGURES,
    "test_what_lies_before_a_reset_is_passed_over": _FIGURES,
    "test_what_a_filter_rejects_is_settled_without_delivery_and_counted": _FIGURES,
    "test_what_the_filter_rejects_is_settled_without_delivery": _FIGURES,
    "test_retention_drops_what_is_not_settled_and_counts_it": _FIGURES,
    "test_keep_until_settled_keeps_what_any_group_has_not_settled": _FIGURES,
    "test_expiry_counts_also_where_everything_is_kept_until_settled": _FIGURES,
    "test_a_group_that_never_polled_a_topic_of_much_traffic_goes_on_at_its_first": _FIGURES,
    "test_limits_that_are_set_later_count_at_once_for_groups_too": _FIGURES,
    "test_a_message_that_expires_in_the_queue_is_not_delivered_and_is_counted": _FIGURES,
    "test_everything_expired_is_counted_also_when_nobody_polled": _FIGURES,
    "test_a_nacked_message_does_not_outlive_its_time": _FIGURES,
    "test_by_count_the_oldest_go": _FIGURES,
    "test_by_bytes_the_oldest_go": _FIGURES,
    "test_counts_follow_what_happens": _FIGURES,
    "test_drops_are_counted_by_reason": _FIGURES,
    "test_a_lower_limit_takes_effect_at_once": _FIGURES,
    "test_what_is_in_flight_is_listed_with_age_holder_and_count": _FIGURES,
    "test_a_group_that_begins_after_a_cancel_does_not_wait_for_what_was_cancelled": _FIGURES,
    "test_a_lease_may_be_made_shorter": "how long a lease runs begins anew with another leader",
    "test_a_subscription_is_paced_too": _RATE,
    "test_a_rate_of_a_thousand_a_second_is_kept_smoothly": _RATE,
    "test_who_reads_on_before_it_settles_has_one_message_of_a_key_from_then_on": _WHOSE,
    "test_a_poll_that_is_cancelled_at_any_turn_loses_nothing": _GRACE,
    "test_block_gives_up_after_its_timeout_and_has_published_nothing": _ROOM,
    "test_what_was_read_and_what_expired_are_counted_apart": _FIGURES,
    "test_what_ttl_and_what_age_ended_are_counted_apart": _FIGURES,
    "test_a_delayed_message_whose_time_ended_is_counted": _FIGURES,
    "test_waits_say_who_held_publishers_back": _FIGURES,
    "test_stats_under_load_agree_with_themselves": _FIGURES,
    "test_a_first_publish_is_not_called_a_repeat": _AGAIN,
    "test_a_repeated_commit_changes_nothing_and_answers_as_the_first": _AGAIN,
    "test_of_repeats_that_are_under_way_together_one_is_the_first": _AGAIN,
}
"""Promises that end with the leader, and why."""
NOT_DURING = {op for op, operation in OPERATIONS.items() if operation.once} - {
    Op.BACKUP,
    Op.DELETE_TOPIC,
}
"""The leader is stopped before one of these or behind it: what is promised in between is
OutcomeUnknown, and most tests need the outcome. Those of the two that are taken out ask again.
The same goes for a poll that does not wait: what it was granted may come after the grace time."""


def connect_with_stops(directory: Path, seed: int, **options: Any) -> flintmq.Client:
    clock = options["clock"]
    client = flintmq.connect("flint://127.0.0.1:1", **options)
    far = client._broker
    assert isinstance(far, RemoteBroker)
    cluster = StoppedCluster(directory, far, clock, Random(seed))
    far.open = cluster.begin  # type: ignore[method-assign]
    far.close = cluster.end  # type: ignore[method-assign]
    clock.wait_also_for(cluster.settled)
    return client


def looks_only(control: bytes) -> bool:
    return msgspec.msgpack.decode(control, type=TakeLeasedRequest).timeout == 0


class NodeLead:
    """Implements `Leadership` of the native server."""

    def __init__(self, node: ClusterNode, addresses: dict[int, str]) -> None:
        self._node, self._addresses = node, addresses
        self.server = NativeServer(node.local, leadership=self)
        self.is_ready = False
        self.learning: asyncio.Task[None] | None = None
        node.on_leader_changed(self._changed)

    def refusal(self) -> NotLeader | None:
        if self.is_ready and self._node.is_leading():
            return None
        leader = self._node.leader()
        known = [self._addresses[leader]] if leader in self._addresses else []
        return NotLeader(self._node.id, leader, known if leader != self._node.id else [])

    def map(self) -> ClusterMap:
        group = MapGroup(0, self._node.leader(), self._node.host.term, [1, 2, 3])
        return ClusterMap(b"c" * 16, [], [group])

    def _changed(self, leader: int, term: int) -> None:
        was_ready, self.is_ready = self.is_ready, False
        if leader == self._node.id:
            self.learning = asyncio.get_running_loop().create_task(self._learn())
        elif was_ready and (refusal := self.refusal()) is not None:
            self.server.send_away(refusal)

    async def _learn(self) -> None:
        await self.server.learn_topics(self._node.local)
        self.is_ready = True


class StoppedCluster(ContractCluster):
    stopped = 0
    """In how many tests a leader was stopped, in this process."""

    def __init__(
        self, directory: Path, far: RemoteBroker, clock: ManualClock, random: Random
    ) -> None:
        super().__init__(directory, clock=clock, decoder=Codec())
        self._far, self._random = far, random
        self._open, self._close, self._link_ask = far.open, far.close, far.link.ask
        self._leads: dict[int, NodeLead] = {}
        self._addresses: dict[int, str] = {}
        self._is_open = False
        self._turns = self._asked_once = 0
        self._stopping: asyncio.Task[None] | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._passing: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        for id in self.ids:
            node = self.nodes[id] = self.make(id)
            self._leads[id] = NodeLead(node, self._addresses)
        await self.open()
        addresses = []
        for id, lead in self._leads.items():
            host, port = await lead.server.start("127.0.0.1", 0)
            self._addresses[id] = f"{host}:{port}"
            addresses.append((host, port))
        self._far.link.dialer.addresses = addresses
        self._far.link.ask = self._ask  # type: ignore[method-assign]
        await self._open()
        self._is_open = True
        self._turns = self._random.randrange(*TURNS)
        self._count()

    def _count(self) -> None:
        self._turns -= 1
        if (self._turns > 0 or self._asked_once) and self._is_open:
            asyncio.get_running_loop().call_soon(self._count)
        elif self._is_open:
            self._stopping = asyncio.get_running_loop().create_task(self._stop_leader())

    async def _ask(self, op: Op, *arguments: Any, **keywords: Any) -> Frame:
        if op in NOT_DURING and self._stopping is not None:
            await self._stopping
            await self.settled()
        is_whole = op in NOT_DURING or (op is Op.TAKE_LEASED and looks_only(arguments[0]))
        self._asked_once += is_whole
        try:
            return await self._link_ask(op, *arguments, **keywords)
        finally:
            self._asked_once -= is_whole

    async def _stop_leader(self) -> None:
        leader = self.leader()
        if leader is None:
            return
        StoppedCluster.stopped += 1
        # As when a process ends: connections are lost, and nobody takes leave of anybody.
        server = self._leads.pop(leader.id).server
        for connection in list(server.connections):
            connection.abort()
        leader.host.stop(Closed("the broker"))
        await server.close()
        await self.kill(leader.id)
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(STUCK_SECONDS, self._grace_ends)

    def _grace_ends(self) -> None:
        assert isinstance(self.clock, ManualClock)
        passing = self.clock.advance(RECLAIM_SECONDS + 0.1)
        self._passing = asyncio.get_running_loop().create_task(passing)

    async def end(self) -> None:
        self._is_open = False
        if self._patience is not None:
            self._patience.cancel()
        if self._stopping is not None:
            await self._stopping
        await self._close()
        for id in list(self._leads):
            await self._leads.pop(id).server.close()
        await self.stop()

    # --- what is on its way

    async def settled(self) -> bool:
        waited = False
        quiet = 0
        while self._is_open and quiet < 3:
            quiet += 1
            while self._is_open and self._is_in_flight():
                waited, quiet = True, 0
                await asyncio.sleep(0 if self.leader() is not None else 0.001)
            if await super().settled():
                waited, quiet = True, 0
            await asyncio.sleep(0)
        return waited

    def _is_in_flight(self) -> bool:
        ours, leader = self._far.link._connection, self.leader()
        if self._stopping is not None and not self._stopping.done():
            return True
        if ours is None or leader is None or leader.id not in self._leads:
            return True
        theirs = list(self._leads[leader.id].server.connections)
        if len(theirs) != 1:
            return True
        return bool(
            ours._out
            or theirs[0]._out
            or ours.bytes_sent != theirs[0].bytes_received
            or theirs[0].bytes_sent != ours.bytes_received
        )
