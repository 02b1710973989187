"""Every operation of the native protocol against no key, a wrong key, a key that may and one that
may not. The operations are those of the code: a new one without a rule or a line here fails.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from flintmq.batch import BatchBuilder
from flintmq.net.server.requests import HANDLERS
from flintmq.net.wire import operations as ops
from flintmq.net.wire.definition_requests import (
    DefineRequest,
    DefinitionsRequest,
    WebhookStatesRequest,
)
from flintmq.net.wire.letter_requests import RedriveEditedRequest, RedriveRequest
from flintmq.net.wire.operations import OPERATIONS, Op, OpenRequest

from .keys import KeyedServer
from .raw_client import RawClient, kind_of, value_of

ALL = ("publish", "consume", "administer")
READER = ops.OpenReaderRequest("orders", "n")
MEMBER = ops.JoinGroupRequest("orders", "g")


class Case(NamedTuple):
    """One operation: what is sent, and which single permission is enough for it."""

    control: Any
    enough: tuple[str, ...]
    stream: tuple[Op, Any] | None = None
    """Opened before: the operation concerns it."""
    has_batch: bool = False
    allowed: str = "REPLY"
    """What who may hears, where that is an error of another kind."""


def named(topic: str = "orders", group: str = "g") -> ops.GroupNameRequest:
    return ops.GroupNameRequest(topic, group, 10)


CASES: dict[Op, Case] = {
    Op.OPEN: Case(OpenRequest(), ALL, allowed="InvalidRequest"),
    Op.PING: Case([], ALL),
    Op.GOODBYE: Case([], ALL),
    Op.PUBLISH: Case(ops.PublishRequest("orders"), ("publish",), has_batch=True),
    Op.PUBLISH_ROWS: Case(
        ops.PublishRowsRequest("me", [ops.RowsRequest("orders", 0, [b"row"])]),
        ("publish",),
        allowed="RECEIPTS",
    ),
    Op.REQUEST: Case(
        ops.RequestRequest("orders", "a" * 32, 0),
        ("publish",),
        allowed="NoResponders",
        has_batch=True,
    ),
    Op.REPLY_TO: Case(ops.ReplyToRequest("a" * 32), ALL, has_batch=True),
    Op.STAGE: Case(ops.StageRequest("w", 1, "p", ["orders"]), ("publish",), has_batch=True),
    Op.COMMIT_STAGE: Case(ops.CommitStageRequest("theirs", 1, ["p"]), ("publish",)),
    Op.ABORT_STAGE: Case(ops.AbortStageRequest("theirs", 1), ("publish",)),
    Op.CREATE_TOPIC: Case(ops.SetTopicRequest("orders", {}), ("administer",)),
    Op.CONFIGURE_TOPIC: Case(ops.SetTopicRequest("orders", {"ttl": 60.0}), ("administer",)),
    Op.DELETE_TOPIC: Case(ops.NameRequest("orders"), ("administer",)),
    Op.TOPICS: Case(ops.NameRequest(">"), ALL),
    Op.TOPIC_INFO: Case(ops.NameRequest("orders"), ALL),
    Op.TOPIC_STATS: Case(ops.NameRequest("orders"), ALL),
    Op.STATS_OF: Case(ops.NamesRequest(["orders"]), ALL),
    Op.CLUSTER: Case(ops.ClusterRequest("status"), (), allowed="InvalidRequest"),
    Op.BACKUP: Case(ops.NameRequest("/nowhere/flintmq"), (), allowed="InvalidRequest"),
    Op.DEFINITIONS: Case(DefinitionsRequest("webhook", "orders"), ("administer",)),
    Op.DEFINE: Case(DefineRequest("webhook", "orders", "g", b"{}"), ("administer",)),
    Op.WEBHOOK_STATES: Case(WebhookStatesRequest("orders"), ("administer",)),
    Op.TEST_WEBHOOK: Case(named(), ("administer",), allowed="InvalidRequest"),
    Op.PURGE_TOPIC: Case(ops.PurgeTopicRequest("orders"), ("administer",)),
    Op.OPEN_READER: Case(READER, ("consume",)),
    Op.OPEN_FEED: Case(ops.OpenFeedRequest("orders"), ("consume",)),
    Op.TAKE: Case(ops.TakeRequest(1, 1, 0), ("consume",), (Op.OPEN_READER, READER)),
    Op.SEEK: Case(ops.SeekRequest(1, "earliest"), ("consume",), (Op.OPEN_READER, READER)),
    Op.COMMIT: Case(ops.CommitRequest(1), ("consume",), (Op.OPEN_READER, READER)),
    Op.POSITION: Case(ops.StreamRequest(1), ("consume",), (Op.OPEN_READER, READER)),
    Op.LAG: Case(ops.StreamRequest(1), ("consume",), (Op.OPEN_READER, READER)),
    Op.CLOSE_STREAM: Case(ops.CloseStreamRequest(1), ALL),
    Op.FETCH: Case(ops.FetchRequest("orders", 0, 1), ("consume",)),
    Op.FETCH_RANGE: Case(ops.FetchRangeRequest("orders", 0, None, 1, 0), ("consume",)),
    Op.FETCH_RANGES: Case(ops.FetchRangesRequest(["orders"], [0], [1], [None], 0), ("consume",)),
    Op.PUT_BACK: Case(ops.CloseStreamRequest(1), ("consume",), (Op.OPEN_READER, READER)),
    Op.EXTENTS: Case(ops.ExtentsRequest(["orders"]), ("consume",)),
    Op.OBJECTS: Case(ops.ObjectsRequest("orders", 0, 1), ("consume",)),
    Op.WAIT_BEYOND: Case(ops.WaitBeyondRequest({"orders": 0}, 0), ("consume",)),
    Op.JOIN_GROUP: Case(MEMBER, ("consume",)),
    Op.TAKE_LEASED: Case(
        ops.TakeLeasedRequest(1, 1, 30.0, 0), ("consume",), (Op.JOIN_GROUP, MEMBER)
    ),
    Op.SETTLE: Case(ops.SettleRequest(1, "ack", []), ("consume",), (Op.JOIN_GROUP, MEMBER)),
    Op.GROUPS: Case(ops.GroupNameRequest("orders"), ("consume", "administer")),
    Op.GROUP_STATS: Case(named(), ("consume", "administer")),
    Op.PAUSE_GROUP: Case(ops.PauseGroupRequest("orders", "g", True), ("administer",)),
    Op.RESET_GROUP: Case(ops.ResetGroupRequest("orders", "g", "earliest"), ("administer",)),
    Op.DELETE_GROUP: Case(named(), ("administer",)),
    Op.PEEK: Case(named(), ("consume",)),
    Op.IN_FLIGHT: Case(named(), ("consume", "administer")),
    Op.DEAD_LETTERS: Case(named(), ("consume",)),
    Op.REDRIVE: Case(RedriveRequest("orders", "g"), ("administer",)),
    Op.DISCARD: Case(RedriveRequest("orders", "g"), ("administer",)),
    Op.REDRIVE_EDITED: Case(RedriveEditedRequest("orders", "g", 0, {}), ("administer",)),
    Op.CANCEL_DELAYED: Case(ops.CancelDelayedRequest("orders", []), ("publish",)),
}
UNANSWERED = {Op.CANCEL}
"""Has no answer of its own, and concerns requests of the same session only."""

SEEN = {Op.TOPIC_INFO, Op.TOPIC_STATS, Op.STATS_OF}
"""Any permission on the topic is enough, but one there has to be."""

ASKED = sorted(CASES)


def batch() -> list[bytes]:
    builder = BatchBuilder()
    builder.append(b"value")
    sealed = builder.seal()
    return [bytes(sealed.header()), bytes(sealed.body)]


@pytest.fixture
async def filled(keyed: KeyedServer) -> KeyedServer:
    """Everything the cases speak of is there."""
    async with keyed.connect(keyed.admin) as mq:
        await mq.create_topic("orders")
        await mq.publish("orders", b"x")
        async with mq.subscribe("orders", "g"):
            pass
        await mq.stage("theirs", 1, "p", [("orders", [b"staged"])])
    return keyed


async def ask(client: RawClient, op: Op) -> Any:
    case = CASES[op]
    return await client.ask(op, case.control, batch() if case.has_batch else ())


# --- the lists are complete


def test_every_operation_has_a_rule_and_a_case() -> None:
    assert set(OPERATIONS) == {op for op in Op if op < Op.REPLY}
    assert set(CASES) == set(OPERATIONS) - UNANSWERED
    assert set(HANDLERS) == set(OPERATIONS) - IN_THE_SESSION


IN_THE_SESSION = {Op.OPEN, Op.PING, Op.CANCEL, Op.GOODBYE, Op.PUBLISH, Op.PUBLISH_ROWS, Op.TAKE}
"""What concerns the connection itself, and the hot paths: they have no handler in the table."""


# --- the matrix


@pytest.mark.parametrize("op", ASKED, ids=lambda op: op.name)
async def test_without_a_key_nothing_is_answered(filled: KeyedServer, op: Op) -> None:
    async with RawClient(filled.address) as client:
        wanted = "NotAuthenticated" if op == Op.OPEN else "MalformedFrame"
        assert kind_of(await ask(client, op)) == wanted
        assert await client.is_closed()


@pytest.mark.parametrize("op", ASKED, ids=lambda op: op.name)
async def test_with_a_wrong_key_nothing_is_answered_either(filled: KeyedServer, op: Op) -> None:
    async with RawClient(filled.address) as client:
        assert kind_of(await client.open(filled.admin[:-2])) == "NotAuthenticated"
        assert await client.is_closed()


@pytest.mark.parametrize("op", ASKED, ids=lambda op: op.name)
async def test_a_key_for_other_topics_may_not(filled: KeyedServer, op: Op) -> None:
    case = CASES[op]
    start = "orders" if case.stream is not None else "other.>"
    key = filled.add("k", **dict.fromkeys(ALL, start))
    async with RawClient(filled.address) as client:
        await client.open(key)
        if case.stream is not None:
            assert kind_of(await client.ask(*case.stream)) == "REPLY"
            filled.regrant("k", publish="other.>", consume="another.>", administer="third.>")
        frame = await ask(client, op)
        if op == Op.TOPICS:
            assert value_of(frame) == []
        elif case.enough == ALL and op not in SEEN:
            assert kind_of(frame) == case.allowed
        else:
            assert kind_of(frame) == "PermissionDenied"


@pytest.mark.parametrize("op", ASKED, ids=lambda op: op.name)
async def test_a_key_for_the_topic_may_what_its_permission_says(
    filled: KeyedServer, op: Op
) -> None:
    case = CASES[op]
    for permission in sorted(ALL, key=lambda one: one in case.enough):  # what changes comes last
        if case.stream is not None and permission not in case.enough:
            continue  # it could not have been opened: that is a case of its own
        key = filled.add(permission, **{permission: "orders"})
        async with RawClient(filled.address) as client:
            await client.open(key)
            if case.stream is not None:
                await client.ask(*case.stream)
            wanted = case.allowed if permission in case.enough else "PermissionDenied"
            assert kind_of(await ask(client, op)) == wanted, permission


async def test_a_backup_needs_to_administer_everything_and_a_place_below_the_one_for_it(
    filled: KeyedServer, tmp_path: Any
) -> None:
    filled.server.backup_dir = tmp_path / "backups"
    almost = filled.add("almost", administer="orders,*.>")
    outcomes = {}
    for key in (almost, filled.admin):
        async with RawClient(filled.address) as client:
            await client.open(key)
            for place in ("backups/one", "elsewhere", "backups", "backups/../up"):
                frame = await client.ask(Op.BACKUP, ops.NameRequest(f"{tmp_path}/{place}"))
                text = str(value_of(frame)[1]) if kind_of(frame) != "REPLY" else ""
                outcomes[key, place] = (kind_of(frame), "backup_dir" in text)
    assert {outcomes[almost, place][0] for _, place in outcomes} == {"PermissionDenied"}
    # a broker in memory has nothing to copy: that it says so means that the place was fine
    assert outcomes[filled.admin, "backups/one"] == ("InvalidRequest", False)
    for place in ("elsewhere", "backups", "backups/../up"):
        assert outcomes[filled.admin, place] == ("InvalidRequest", True)


@pytest.mark.parametrize("op", [op for op in ASKED if op > 4], ids=lambda op: op.name)
async def test_names_that_are_none_are_no_way_around_a_rule(filled: KeyedServer, op: Op) -> None:
    case = CASES[op]
    fields = [getattr(case.control, name) for name in case.control.__struct_fields__]
    key = filled.add("k", publish="other")
    for name in (["orders"], {"a": 1}, 5, None, b"orders"):
        if op == Op.CLOSE_STREAM and name == 5:
            continue  # a number is what it takes, and one that is not open is closed
        async with RawClient(filled.address) as client:
            await client.open(key)
            frame = await client.ask(op, [name, *fields[1:]], batch() if case.has_batch else ())
            assert kind_of(frame) in REFUSALS, name


REFUSALS = ("InvalidRequest", "PermissionDenied", "Closed", "MalformedFrame")


def test_the_table_for_people_is_the_table_of_rules() -> None:
    text = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    rows = re.findall(r"^\| ([A-Z_]+(?:, [A-Z_]+)*) \| (.+) \|$", text, re.MULTILINE)
    written = {name: needs for names, needs in rows for name in names.split(", ")}

    assert written == {op.name: row.rule.text for op, row in OPERATIONS.items()}
