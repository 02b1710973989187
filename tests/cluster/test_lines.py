"""Lines between nodes, over real sockets on loopback."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from pathlib import Path
from types import SimpleNamespace

import pytest

from flintmq.cluster import lines
from flintmq.cluster import peers as peers_module
from flintmq.cluster.peer_frames import AboutNode, GoodbyeReason, LineKind, encode_frame
from flintmq.cluster.peers import LineTls, PeerState
from flintmq.net.tls.files import load_authorities, load_pair
from flintmq.raft import MessageKind, RaftEntry, RaftMessage

from ..patience import until
from ..tls.throw_away import Authority
from .wired import WiredNodes, wired


def heartbeat(sender: int, receiver: int, commit: int = 0) -> RaftMessage:
    return RaftMessage(MessageKind.HEARTBEAT, sender, receiver, term=1, commit=commit)


def append(sender: int, receiver: int, data: bytes) -> RaftMessage:
    return RaftMessage(
        MessageKind.APPEND, sender, receiver, term=1, entries=(RaftEntry(1, 1, data),)
    )


def state(nodes: WiredNodes, node: int, peer: int) -> PeerState:
    return nodes.peers[node].states[peer]


async def connected(nodes: WiredNodes, one: int = 1, other: int = 2) -> None:
    await until(
        lambda: len(state(nodes, one, other).lines) == len(state(nodes, other, one).lines) == 2,
        "two lines",
    )


async def test_nodes_find_each_other_and_have_a_main_and_a_bulk_line() -> None:
    async with wired(3) as nodes:
        for one, other in ((1, 2), (1, 3), (2, 3)):
            await connected(nodes, one, other)

        assert set(state(nodes, 1, 3).lines) == {LineKind.MAIN, LineKind.BULK}
        assert nodes.nodes[2].lives.count((1, nodes.peers[1].life)) == 1


async def test_messages_arrive_in_order_and_those_of_one_turn_at_once() -> None:
    async with wired() as nodes:
        await connected(nodes)
        sent = [heartbeat(1, 2, commit) for commit in range(1, 101)]
        nodes.peers[1].send(2, sent)
        nodes.peers[2].send(1, [heartbeat(2, 1)])
        await until(lambda: bool(nodes.nodes[1].messages and nodes.nodes[2].messages), "arrived")

        assert nodes.nodes[2].messages == [(1, message) for message in sent]
        assert nodes.nodes[2].turns == [100]
        assert nodes.nodes[1].messages == [(2, heartbeat(2, 1))]


async def test_a_large_entry_arrives_as_it_was() -> None:
    data = bytes(range(256)) * 4096 * 4
    async with wired() as nodes:
        await connected(nodes)
        nodes.peers[2].send(1, [append(2, 1, data)])
        await until(lambda: bool(nodes.nodes[1].messages), "arrived")

        assert bytes(nodes.nodes[1].messages[0][1].entries[0].data) == data


async def test_a_line_comes_back_by_itself_and_the_node_hears_of_another_life() -> None:
    async with wired() as nodes:
        await connected(nodes)
        first_life = nodes.peers[2].life
        await nodes.stop(2)
        await until(lambda: nodes.nodes[1].lost == [2], "the loss is told")
        nodes.peers[1].send(2, [heartbeat(1, 2)])
        assert state(nodes, 1, 2).dropped == 1
        await nodes.start(2)
        await connected(nodes)

        lives = [life for _, life in nodes.nodes[1].lives]
        assert lives == [first_life, nodes.peers[2].life]
        assert len(set(lives)) == 2


async def test_why_a_line_was_lost_is_told_in_words() -> None:
    async with wired() as nodes:
        await connected(nodes)
        line = state(nodes, 2, 1).lines[LineKind.MAIN]
        assert line._transport is not None
        unread = struct.pack("ii", 1, 0)
        line._transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, unread
        )
        reasons: list[str] = []
        lost = nodes.peers[1].line_lost

        def note(line: lines.PeerLine) -> None:
            assert line.why is not None
            reasons.append(line.why.text)
            lost(line)

        state(nodes, 1, 2).lines[LineKind.MAIN]._owner = SimpleNamespace(line_lost=note)
        line.abort()
        await until(lambda: bool(reasons), "the line is lost")

        assert reasons == ["Connection reset by peer"]


async def test_a_new_line_of_a_node_ends_the_one_before_it() -> None:
    async with wired() as nodes:
        await connected(nodes)
        before = state(nodes, 2, 1).lines[LineKind.MAIN]
        place = nodes.places[2]
        again = await nodes.peers[1]._dial(
            nodes.peers[1], LineKind.MAIN, 2, place.address, place.name
        )
        await before.wait_ended()
        await until(
            lambda: state(nodes, 2, 1).lines.get(LineKind.MAIN) not in (None, before), "a new one"
        )
        await until(lambda: again.was_open or again.why is not None, "met")

        assert before.why is not None
        assert before.why.reason == GoodbyeReason.REPLACED


@pytest.mark.parametrize("kind", [LineKind.MAIN, LineKind.BULK])
async def test_who_dials_a_node_and_meets_another_there_does_not_disturb_that_one(
    kind: LineKind,
) -> None:
    """A lost node is replaced at its address: others dial it there until it is removed."""
    async with wired() as nodes:
        await connected(nodes)
        line, lost = state(nodes, 2, 1).lines[kind], list(nodes.nodes[2].lost)
        place = nodes.places[2]
        wrong = await nodes.peers[1]._dial(nodes.peers[1], kind, 3, place.address, place.name)
        await wrong.wait_ended()
        nodes.peers[1].send(2, [heartbeat(1, 2, commit=7)])
        await until(lambda: bool(nodes.nodes[2].messages), "what is sent arrives")
        await until(lambda: not state(nodes, 2, 1).coming, "the other line is gone")

        assert wrong.why is not None
        assert wrong.why.reason == GoodbyeReason.NODE
        assert state(nodes, 2, 1).lines[kind] is line
        assert line.why is None
        assert nodes.nodes[2].lost == lost


async def test_a_full_line_drops_messages_and_nothing_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines, "QUEUE_BYTES_MAX", -1)
    async with wired() as nodes:
        await connected(nodes)
        nodes.peers[1].send(2, [heartbeat(1, 2), heartbeat(1, 2)])

        assert state(nodes, 1, 2).dropped == 2


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"key": b"another"}, "different cluster keys"),
        ({"cluster": b"d" * 16}, "belongs to cluster"),
        ({"incarnation": 5}, "lost its data directory"),
    ],
)
async def test_a_node_that_does_not_belong_is_refused_and_both_sides_know_why(
    wrong: dict[str, bytes], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with wired(started=False) as nodes:
        await nodes.start(1)
        await nodes.start(2, **wrong)  # type: ignore[arg-type]
        await until(lambda: text in state(nodes, 1, 2).why, "refused")

        assert nodes.nodes[1].lives == []
        assert any(text in record.getMessage() for record in caplog.records)


async def test_a_node_that_is_no_peer_is_refused() -> None:
    async with wired(3, started=False) as nodes:
        await nodes.start(1)
        all_places, nodes.places = nodes.places, {2: nodes.places[2], 3: nodes.places[3]}
        await nodes.start(2)
        nodes.places = all_places
        await until(lambda: "is no peer of node 2" in state(nodes, 1, 2).why, "refused")


async def test_a_message_in_anothers_name_ends_the_line() -> None:
    async with wired(3) as nodes:
        await connected(nodes)
        line = state(nodes, 1, 2).lines[LineKind.MAIN]
        nodes.peers[1].send(2, [heartbeat(3, 2)])
        await line.wait_ended()

        assert line.why is not None
        assert "sent a message from 3" in line.why.text
        assert nodes.nodes[2].messages == []


async def test_rubbish_ends_the_line_and_it_comes_back() -> None:
    async with wired() as nodes:
        await connected(nodes)
        line = state(nodes, 1, 2).lines[LineKind.MAIN]
        line.write(encode_frame(1, [b"rubbish"], count=3))
        await line.wait_ended()
        assert line.why is not None
        assert line.why.reason == GoodbyeReason.MALFORMED
        await connected(nodes)


async def test_a_frame_of_a_kind_that_is_not_known_yet_is_passed_over() -> None:
    async with wired() as nodes:
        await connected(nodes)
        state(nodes, 1, 2).lines[LineKind.MAIN].write(encode_frame(200, [b"from the future"]))
        nodes.peers[1].send(2, [heartbeat(1, 2)])
        await until(lambda: bool(nodes.nodes[2].messages), "arrived")


async def test_pings_measure_the_way_and_a_silent_line_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers_module, "PING_SECONDS", 0.01)
    async with wired() as nodes:
        await connected(nodes)
        await until(lambda: state(nodes, 1, 2).round_trip_ms is not None, "an answer to a ping")

        line = state(nodes, 1, 2).lines[LineKind.MAIN]
        monkeypatch.setattr(peers_module, "SILENT_SECONDS", -1.0)
        await line.wait_ended()
        monkeypatch.setattr(peers_module, "SILENT_SECONDS", 60.0)
        await connected(nodes)


async def test_nodes_tell_where_their_clients_connect() -> None:
    async with wired(started=False) as nodes:
        told = AboutNode("n2", "127.0.0.1:7610", "1.0")
        await nodes.start(1)
        await nodes.start(2)
        nodes.peers[2]._about = lambda: told
        await until(lambda: state(nodes, 1, 2).about == told, "told")


async def test_other_protocols_are_turned_away() -> None:
    async with wired() as nodes:
        reader, writer = await asyncio.open_connection(*nodes.places[1].address)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert b"must start with" in await reader.read()
        writer.close()
        await writer.wait_closed()


def tls_of(ca: Authority, name: str) -> LineTls:
    pair = ca.pair(name)
    contexts = []
    for purpose in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
        context = ssl.SSLContext(purpose)
        load_pair(context, pair.cert, pair.key, names="test")
        load_authorities(context, ca.file, name="test")
        context.verify_mode = ssl.CERT_REQUIRED
        contexts.append(context)
    return LineTls(*contexts)


async def test_with_tls_both_sides_show_the_certificate_of_their_name(tmp_path: Path) -> None:
    ca = Authority(tmp_path)
    async with wired(started=False) as nodes:
        for node in (1, 2):
            await nodes.start(node, key=None, tls=tls_of(ca, f"n{node}"))
        await connected(nodes)
        nodes.peers[1].send(2, [heartbeat(1, 2)])
        await until(lambda: bool(nodes.nodes[2].messages), "arrived")


@pytest.mark.parametrize(("wrong", "text"), [(1, "does not name 'n1'"), (2, "TLS: ")])
async def test_with_tls_a_certificate_of_another_name_is_refused(
    wrong: int, text: str, tmp_path: Path
) -> None:
    ca = Authority(tmp_path)
    async with wired(started=False) as nodes:
        for node in (1, 2):
            name = "somebody" if node == wrong else f"n{node}"
            await nodes.start(node, key=None, tls=tls_of(ca, name))
        await until(lambda: text in state(nodes, 1, 2).why, "refused")

        assert nodes.nodes[2].lives == []
