"""What a node of a cluster shows on /metrics."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

import flintmq
from flintmq.frontends.http.cluster_metrics import CLUSTER

from ..patience import until
from ..servers.http.promtool import Read, read_page
from .processes import NodeProcess, founded, leader_of


async def page_of(node: NodeProcess) -> dict[str, Read]:
    async with httpx.AsyncClient() as http:
        answer = await http.get(f"http://127.0.0.1:{node.http}/metrics")
        assert answer.status_code == 200
        return read_page(answer.text)


@pytest.mark.slow
async def test_leader_and_follower_show_who_leads_how_far_all_are_and_how_long_commits_take(
    tmp_path: Path,
) -> None:
    async with founded(tmp_path, "a", "b", "c") as nodes:
        leader = await leader_of(nodes)
        async with flintmq.connect(leader.url) as mq:
            for number in range(10):
                await mq.publish("orders", number)
            async with mq.subscribe("orders", group="billing") as messages:
                await (await anext(messages)).ack()

        def value(page: dict[str, Read], name: str, **labels: str) -> float:
            return page[name].samples[name, tuple(labels.items())]

        page = await page_of(leader)
        assert {family.name for family in CLUSTER} <= page.keys()
        assert value(page, "flintmq_cluster_nodes") == 3
        assert value(page, "flintmq_raft_is_leader", group="0") == 1
        assert value(page, "flintmq_cluster_abstaining") == 0
        assert abs(value(page, "flintmq_cluster_clock_skew_seconds")) < 0.5
        commits = page["flintmq_raft_commit_seconds"].samples
        assert commits["flintmq_raft_commit_seconds_count", ()] >= 10
        others = [node for node in nodes.values() if node is not leader]
        lags = page["flintmq_raft_peer_lag_entries"].samples
        assert len(lags) == 2
        assert len(page["flintmq_raft_peer_lag_bytes"].samples) == 2
        assert value(page, "flintmq_raft_proposals_total", group="0", fate="applied") >= 11
        assert value(page, "flintmq_raft_proposals_total", group="0", fate="not_done") == 0
        assert value(page, "flintmq_cluster_late_ticks_total") >= 0

        assert value(page, "flintmq_topic_messages", topic="orders") == 10
        assert value(page, "flintmq_topic_published_messages_total", topic="orders") == 10
        assert value(page, "flintmq_group_lag_messages", topic="orders", group="billing") == 9
        assert "flintmq_journal_sync_seconds" in page

        page = await page_of(others[0])
        assert value(page, "flintmq_raft_is_leader", group="0") == 0
        assert value(page, "flintmq_cluster_has_leader") == 1
        assert "flintmq_raft_peer_lag_entries" not in page

        async def has_applied() -> bool:
            page = await page_of(others[0])
            lag = "flintmq_group_lag_messages"
            return (
                page[lag].samples.get((lag, (("topic", "orders"), ("group", "billing")))) == 9
                and value(page, "flintmq_topic_messages", topic="orders") == 10
            )

        await until(has_applied, "who follows shows what is stored")
        page = await page_of(others[0])
        for unknown in (
            "topic_published_messages_total",
            "group_in_flight_messages",
            "topic_readers",
        ):
            assert f"flintmq_{unknown}" not in page

        await others[1].kill()

        async def is_seen() -> bool:
            page = await page_of(leader)
            name = "flintmq_cluster_peer_connected"
            return value(page, name, peer=others[1].name) == 0

        await until(is_seen, "the leader shows that a node is gone")
