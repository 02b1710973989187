"""How two nodes meet, without a socket: bytes are carried by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.cluster.handshake import Handshake, Refusal, TurnedAway
from flintmq.cluster.peer_frames import (
    GoodbyeReason,
    LineKind,
    PeerHealth,
    PeerHello,
    encode_goodbye,
    encode_ping,
)

KEY = b"k" * 32


def hello(node: int) -> PeerHello:
    return PeerHello(LineKind.MAIN, b"c" * 16, node, node * 10, node * 100, bytes([node]) * 16)


def anybody(hello: PeerHello) -> Refusal | None:
    return None


def pair(
    *,
    keys: tuple[bytes | None, bytes | None] = (KEY, KEY),
    hellos: tuple[PeerHello, PeerHello] | None = None,
    look: object = anybody,
) -> tuple[Handshake, Handshake]:
    first, second = hellos or (hello(1), hello(2))
    return (
        Handshake(first, is_dialler=True, key=keys[0], look=anybody),
        Handshake(second, is_dialler=False, key=keys[1], look=look),  # type: ignore[arg-type]
    )


def meet(dialler: Handshake, answerer: Handshake, sizes: list[int] | None = None) -> None:
    """Carry bytes both ways, in pieces of these sizes, until nothing is on its way."""
    ways = [(dialler, answerer, dialler.start()), (answerer, dialler, b"")]
    turn = 0
    while any(way[2] for way in ways):
        for at, (sender, receiver, data) in enumerate(ways):
            if data:
                size = len(data) if sizes is None else sizes[turn % len(sizes)]
                turn += 1
                piece, rest = data[:size], data[size:]
                ways[at] = (sender, receiver, rest)
                back = ways[1 - at]
                ways[1 - at] = (back[0], back[1], back[2] + receiver.feed(piece))


@given(st.lists(st.integers(1, 80), min_size=1, max_size=6))
def test_two_nodes_with_the_same_key_meet_however_the_bytes_come(sizes: list[int]) -> None:
    dialler, answerer = pair()

    meet(dialler, answerer, sizes)

    assert dialler.is_done
    assert answerer.is_done
    assert dialler.theirs == hello(2)
    assert answerer.theirs == hello(1)


def test_with_tls_no_proof_is_exchanged() -> None:
    dialler, answerer = pair(keys=(None, None))

    meet(dialler, answerer)

    assert dialler.is_done
    assert answerer.is_done


def test_what_comes_behind_the_handshake_is_kept() -> None:
    dialler, answerer = pair()
    proof = dialler.feed(answerer.feed(dialler.start()))
    ping = encode_ping(PeerHealth(1, 2))

    dialler.feed(answerer.feed(proof) + ping)

    assert dialler.rest == ping


def test_a_node_with_another_key_is_turned_away_and_told_why() -> None:
    dialler, answerer = pair(keys=(b"other", KEY))

    with pytest.raises(TurnedAway, match="different cluster keys") as caught:
        meet(dialler, answerer)
    assert not answerer.is_done
    with pytest.raises(TurnedAway, match="different cluster keys"):
        dialler.feed(caught.value.goodbye)


def test_a_proof_cannot_be_handed_back_or_used_again() -> None:
    dialler, answerer = pair()
    proof = dialler.feed(answerer.feed(dialler.start()))
    with pytest.raises(TurnedAway, match="different cluster keys"):
        dialler.feed(proof)
    _, later = pair(hellos=(hello(1), hello(2)._replace(nonce=b"z" * 16)))
    later.feed(dialler.start())
    with pytest.raises(TurnedAway, match="different cluster keys"):
        later.feed(proof)


@pytest.mark.parametrize("keys", [(KEY, KEY), (None, None)])
def test_who_is_not_wanted_is_refused_once_it_is_known_who_that_is(
    keys: tuple[bytes | None, bytes | None],
) -> None:
    looked: list[int] = []

    def look(theirs: PeerHello) -> Refusal:
        looked.append(theirs.node)
        return GoodbyeReason.CLUSTER, "this is another cluster"

    dialler, answerer = pair(keys=keys, look=look)
    with pytest.raises(TurnedAway) as caught:
        meet(dialler, answerer)
    with pytest.raises(TurnedAway, match="another cluster") as heard:
        dialler.feed(caught.value.goodbye)

    assert looked == [1]
    assert heard.value.reason == GoodbyeReason.CLUSTER


def test_versions_that_do_not_meet_end_with_a_remedy() -> None:
    with pytest.raises(TurnedAway, match="update the older of the two"):
        meet(*pair(hellos=(hello(1)._replace(version_min=7, version_max=9), hello(2))))


def test_a_node_of_an_earlier_level_is_taken_until_the_cluster_is_finalized() -> None:
    old = hello(2)._replace(version_max=1)
    dialler, answerer = pair(hellos=(hello(1)._replace(version_min=1, version_max=2), old))
    meet(dialler, answerer)
    assert dialler.is_done
    assert answerer.is_done

    with pytest.raises(TurnedAway, match=r"levels 1 to 1 .* the other 2 to 2; update") as refused:
        meet(*pair(hellos=(hello(1)._replace(version_min=2, version_max=2), old)))
    assert refused.value.reason == GoodbyeReason.VERSION


def test_a_refusal_in_the_place_of_a_hello_is_heard_in_pieces_too() -> None:
    dialler, _ = pair()
    goodbye = encode_goodbye(GoodbyeReason.CLOSING, "closing")
    for byte in goodbye[:-1]:
        assert dialler.feed(bytes([byte])) == b""
    with pytest.raises(TurnedAway, match="closing"):
        dialler.feed(goodbye[-1:])


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n", b"FLNT" + bytes(80), bytes(80)])
def test_other_protocols_are_refused(said: bytes) -> None:
    _, answerer = pair()
    with pytest.raises(TurnedAway) as caught:
        answerer.feed(said)
    assert caught.value.reason == GoodbyeReason.MALFORMED


def test_nobody_can_make_us_keep_much_before_the_proof() -> None:
    dialler, answerer = pair()
    answerer.feed(dialler.start())
    with pytest.raises(TurnedAway, match="before the proof"):
        answerer.feed((1 << 20).to_bytes(4, "little") + bytes(12))
