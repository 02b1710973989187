"""Control parts: what was written once is read for ever.

`golden/controls.txt` is never made anew, only added to: a change that does not match it is a new
version of the protocol.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from flintmq.net.wire import operations as ops
from flintmq.net.wire.definition_requests import (
    DefineRequest,
    DefinitionsRequest,
    WebhookStatesRequest,
)
from flintmq.net.wire.letter_requests import RedriveEditedRequest, RedriveRequest
from flintmq.net.wire.operations import Control, Op, encode

RUN = ops.RunInfo("orders", 1, 0, 3, [0, 2])
MAP = ops.ClusterMap(
    b"fedcba9876543210",
    [ops.MapNode(1, "a", ["127.0.0.1:7600"])],
    [ops.MapGroup(0, 1, 7, [1, 2, 3], 9, 8)],
    2,
)
ROW = ops.RowFields(b"v", "text/plain", "k", {"h": "1", "b": b"2"}, 7, -30_000, 1_700_000_000_000)
ROWS = ops.RowsRequest("orders/2", 2**63, [b"plain", ROW], False, 1.5, [1, 1])
SAMPLES: list[Control] = [
    RUN,
    ops.OpenRequest(b"0123456789abcdef", 7, None, "host/1", True, True),
    ops.KnownTopic("orders", {"partitions": 4}, True, 5000),
    ops.OpenedReply(
        b"0123456789abcdef", True, 3, 65536, 4096, 120.0, 5.0, "flintmq", [], 1_700_000_000_000, MAP
    ),
    ops.ClusterRequest("replace", "a", "127.0.0.1:7602"),
    MAP.nodes[0],
    MAP.groups[0],
    MAP,
    ops.PublishRequest("orders/2", 1, False, 1.5, [1, 2]),
    ROW,
    ROWS,
    ops.PublishRowsRequest("me", [ROWS, ops.RowsRequest("bills", 0, [b"a"])]),
    ops.ReceiptsReply("synced", [5, 17, 6, 0]),
    ops.RequestRequest("rates", "0123456789abcdef", 2.0, False),
    ops.ReplyToRequest("0123456789abcdef"),
    ops.StageRequest("w", 1, "p", ["orders"], True),
    ops.CommitStageRequest("w", 1, ["p", 2], True),
    ops.AbortStageRequest("w", 1),
    ops.SetTopicRequest("orders", {"ttl": 60.0}),
    ops.NameRequest("orders"),
    ops.NamesRequest(["orders", "bills"]),
    ops.OpenReaderRequest(
        "orders", "n", ["time", 1_700_000_000_000], "priority > 3", True, True, [1], [(1, 5, 9)]
    ),
    ops.OpenFeedRequest("orders.>", 10, "block", None),
    ops.StreamOpenedReply(3, {0: 17}, 2, 9),
    ops.TakeRequest(3, 100, None),
    ops.FetchRequest("orders", 17, 100, 0.5),
    ops.FetchRangeRequest("orders", 17, 90, 100, 1 << 20, "priority > 3", True, 9),
    ops.FetchedRangeReply([RUN], ["orders", 1, 5, 4], 20, 90),
    ops.FetchRangesRequest(["orders", "bills"], [17, 0], [90, 5], [9, 2], 1 << 20, None, True),
    ops.FetchedRangesReply([ops.FetchedRangeReply([RUN], None, 20, 90)]),
    ops.ExtentsRequest(["orders"], ["time", 1_700_000_000_000]),
    ops.WaitBeyondRequest({"orders/0": 17}, 0.25),
    ops.ObjectsRequest("orders/0", 17, 4000),
    ops.TakenReply([RUN], ["orders", 1, 5, 4], 4, None),
    ops.SeekRequest(3, {1: 5}),
    ops.CommitRequest(3, 17, 1),
    ops.StreamRequest(3),
    ops.CancelPieceRequest(2),
    ops.CloseStreamRequest(3, [(0, 5, 9)]),
    ops.JoinGroupRequest("orders", "g", "key", None, "latest", "me", True),
    ops.JoinedReply(3, {"name": "g"}),
    ops.TakeLeasedRequest(3, 10, 30.0, 1.0, False),
    ops.GrantedReply(99, [RUN], {5: 2}),
    ops.SettleRequest(3, "nack", [[99, [[5, 7]]]], 2.5, ""),
    ops.GroupNameRequest("orders", "g", 10),
    ops.PauseGroupRequest("orders", "g", True),
    ops.ResetGroupRequest("orders", "g", "earliest"),
    RedriveRequest("orders", "g", [1, 2], None),
    RedriveEditedRequest("orders", "g", 7, {"value": b"x", "key": None, "headers": {"a": "b"}}),
    ops.CancelDelayedRequest("orders", [(1, 5)]),
    ops.PurgeTopicRequest("orders", 17),
    ops.DeadLettersRequest("orders", "g", 10, 5),
    DefinitionsRequest("webhook", "orders"),
    DefineRequest("webhook", "orders", "g", b"{}", 7),
    WebhookStatesRequest("orders"),
    ops.Fault("TopicNotFound", "no", {"topic": "orders"}),
]
GOLDEN = dict(
    line.split()
    for line in (Path(__file__).parent / "golden" / "controls.txt").read_text().splitlines()
)


def _name(sample: Control) -> str:
    return _known_as(type(sample))


def _known_as(kind: type) -> str:
    """The name of a control part in the golden file and in error texts."""
    return kind.__name__.removesuffix("Request").removesuffix("Reply")


@pytest.mark.parametrize("sample", SAMPLES, ids=_name)
def test_a_control_part_is_written_as_ever_and_read_back(sample: Any) -> None:
    assert encode(sample).hex() == GOLDEN[_name(sample)]
    assert msgspec.msgpack.decode(bytes.fromhex(GOLDEN[_name(sample)]), type=type(sample)) == sample


def test_every_control_part_has_a_golden_sample() -> None:
    kinds = {_known_as(kind) for kind in Control.__subclasses__()}

    assert kinds == {_name(sample) for sample in SAMPLES} == set(GOLDEN)


def test_a_field_that_is_missing_takes_its_default_and_one_too_many_is_ignored() -> None:
    short: Any = msgspec.msgpack.decode(encode(["orders"]), type=ops.PublishRequest)
    long: Any = msgspec.msgpack.decode(
        encode(["orders", 1, True, None, None, "new", 9]), type=ops.PublishRequest
    )

    assert short == long == ops.PublishRequest("orders", 1, True, None, None)


def test_a_broker_of_before_tells_no_time() -> None:
    said = (
        "99c41030313233343536373839616263646566c303ce00010000cd1000cb405e000000000000"
        "cb4014000000000000a7666c696e746d7190"
    )

    assert msgspec.msgpack.decode(bytes.fromhex(said), type=ops.OpenedReply).now_ms == 0


def test_a_client_of_before_does_not_follow_a_leader_and_a_broker_of_before_runs_alone() -> None:
    wanted = bytes.fromhex("95c4103031323334353637383961626364656607c0a6686f73742f31c3")
    opened = bytes.fromhex(
        "9ac41030313233343536373839616263646566c303ce00010000cd1000cb405e000000000000"
        "cb4014000000000000a7666c696e746d7190cf0000018bcfe56800"
    )

    assert not msgspec.msgpack.decode(wanted, type=ops.OpenRequest).follows
    assert msgspec.msgpack.decode(opened, type=ops.OpenedReply).map is None


def test_a_client_of_before_commits_for_all_readers_of_its_name() -> None:
    commit = msgspec.msgpack.decode(bytes.fromhex("93031101"), type=ops.CommitRequest)

    assert commit == ops.CommitRequest(3, 17, 1, own=False)


def test_every_operation_is_in_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "protocol.md").read_text()

    for op in Op:
        assert f"| {int(op)} | {op.name} |" in text, op.name


def test_a_reader_is_opened_as_clients_did_that_hold_nothing() -> None:
    before = "97a66f7264657273a16e92a474696d65cf0000018bcfe56800ac7072696f72697479203e2033c3c39101"

    opened = msgspec.msgpack.decode(bytes.fromhex(before), type=ops.OpenReaderRequest)

    assert (opened.partitions, opened.held) == ([1], [])


def test_a_take_of_before_does_not_ask_for_several_of_a_key() -> None:
    before = "95030acb403e000000000000cb3ff0000000000000c2"

    assert (
        msgspec.msgpack.decode(bytes.fromhex(before), type=ops.TakeLeasedRequest).in_turn is False
    )
