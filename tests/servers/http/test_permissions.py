"""Who may use which route. The routes are those of the table: one without a line here fails."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from flintmq.access import PERMISSIONS
from flintmq.client.client import Client
from flintmq.engine.broker import Broker
from flintmq.frontends.http.api import ROUTES, ApiRoute, api_routes
from flintmq.frontends.http.limits import HttpLimits
from flintmq.frontends.http.pages import Pages
from flintmq.frontends.http.server import HttpServer
from flintmq.frontends.http.state import HttpState
from flintmq.net.server.gate import ApiKeyGate
from flintmq.net.wire.operations import OPERATIONS, Op
from flintmq.serde.codec import Codec

from .conftest import Caller, KeyGate

NEEDS = {
    "overview": "broker",
    **dict.fromkeys(("me", "figures", "topic_options"), "key"),
    **dict.fromkeys(("samples", "stream_samples", "events", "settings"), "broker"),
    "config": "broker",
    "keys": "broker",
    "create_key": "broker",
    "remove_key": "broker",
    "connections": "broker",
    "close_connection": "broker",
    "cluster_status": "broker",
    "cluster_add": "broker",
    "cluster_remove": "broker",
    "cluster_replace": "broker",
    "cluster_transfer": "broker",
    "cluster_finalize": "broker",
    "cluster_doctor": "broker",
    "cluster_restart_plan": "broker",
    **dict.fromkeys(("cluster_settings", "cluster_set", "cluster_unset"), "broker"),
    "topics": "key",
    "topic": "see",
    "create_topic": "administer",
    "configure_topic": "administer",
    "delete_topic": "administer",
    "purge_topic": "administer",
    "messages": "consume",
    "publish": "publish",
    "table": "consume",
    "table_value": "consume",
    "set_value": "publish",
    "delete_value": "publish",
    "request": "publish",
    "reply": "key",
    "groups": "look",
    "group": "look",
    "delete_group": "administer",
    "pause_group": "administer",
    "resume_group": "administer",
    "reset_group": "administer",
    "preview_reset": "look",
    "stream": "consume",
    "poll": "consume",
    "ack": "consume",
    "nack": "consume",
    "reject": "consume",
    "extend": "consume",
    "next_messages": "consume",
    "in_flight": "look",
    "dead_letters": "consume",
    "redrive": "administer",
    "redrive_edited": "administer",
    "discard": "administer",
    "all_webhooks": "broker",
    "all_schedules": "broker",
    **dict.fromkeys(
        [
            "schedules_of_topic", "schedule", "create_schedule", "delete_schedule",
            "pause_schedule", "resume_schedule", "run_schedule",
        ],
        "administer",
    ),
    "all_schemas": "broker",
    **dict.fromkeys(
        [
            "webhooks_of_topic", "webhook", "create_webhook", "delete_webhook", "pause_webhook",
            "resume_webhook", "test_webhook", "schemas_of_topic", "add_schema", "check_schema",
        ],
        "administer",
    ),
}  # fmt: skip
BODIES: dict[str, Any] = {
    **{key: {"name": "a"} for key in ("cluster_remove", "cluster_transfer")},
    **{key: {"name": "a", "peer": "h:1"} for key in ("cluster_add", "cluster_replace")},
    "cluster_set": {"value": "false"},
    **{key: {"text": "x"} for key in ("publish", "set_value", "request", "reply")},
    "reset_group": {"to": "earliest"},
    "preview_reset": {"to": "earliest"},
    "create_key": {"name": "a", "grants": {">": ["consume"]}},
    "redrive_edited": {"text": "x"},
    "redrive": {"all": True},
    "discard": {"all": True},
    "create_webhook": {"url": "https://crm.example/hook"},
    "create_schedule": {"every": 30},
    **{name: {"schema": '"int"'} for name in ("add_schema", "check_schema")},
    **{name: {"leases": ["0.0.1"]} for name in ("ack", "nack", "reject", "extend")},
}
EACH = pytest.mark.parametrize("route", ROUTES, ids=lambda route: name_of(route))


NOT_THERE = {
    *("close_connection", "webhook", "delete_webhook", "pause_webhook", "resume_webhook"),
    *("schedule", "delete_schedule", "pause_schedule", "resume_schedule", "run_schedule"),
    "remove_key",
    *(name for name in NEEDS if name.startswith("cluster_")),
}
"""What a broker alone without connections and webhooks does not have."""
NOT_DONE = {"test_webhook", "create_key"}
"""What only a broker that runs as a process does."""


def name_of(route: ApiRoute) -> str:
    return str(route.handler.__name__)


def test_every_route_is_in_the_matrix() -> None:
    assert {name_of(route) for route in ROUTES} == set(NEEDS)
    assert len(ROUTES) == len(NEEDS)


SAME_AS = {
    "topic": Op.TOPIC_INFO,
    "create_topic": Op.CREATE_TOPIC,
    "configure_topic": Op.CONFIGURE_TOPIC,
    "delete_topic": Op.DELETE_TOPIC,
    "purge_topic": Op.PURGE_TOPIC,
    "messages": Op.FETCH,
    "publish": Op.PUBLISH,
    "request": Op.REQUEST,
    "reply": Op.REPLY_TO,
    "groups": Op.GROUPS,
    "group": Op.GROUP_STATS,
    "delete_group": Op.DELETE_GROUP,
    "pause_group": Op.PAUSE_GROUP,
    "resume_group": Op.PAUSE_GROUP,
    "reset_group": Op.RESET_GROUP,
    "next_messages": Op.PEEK,
    "in_flight": Op.IN_FLIGHT,
    "dead_letters": Op.DEAD_LETTERS,
    "redrive": Op.REDRIVE,
    "redrive_edited": Op.REDRIVE_EDITED,
    "discard": Op.DISCARD,
    "create_webhook": Op.DEFINE,
    "create_schedule": Op.DEFINE,
    "test_webhook": Op.TEST_WEBHOOK,
}


def test_a_route_asks_for_what_the_native_operation_asks_for() -> None:
    needs = {name_of(route): route.rule.text for route in ROUTES}
    assert {name: needs[name] for name in SAME_AS} == {
        name: OPERATIONS[op].rule.text.partition(";")[0] for name, op in SAME_AS.items()
    }  # but for the case that no route has


@pytest.fixture(autouse=True)
async def topics(broker: Broker) -> None:
    await furnish(broker)


async def furnish(broker: Broker) -> None:
    mq = Client(broker, Codec(), auto_create=True, timeout=None)
    await mq.create_topic("orders", compact="key")
    await mq.publish("orders", b"x", key="k")
    await mq.poll("orders", "g")


async def ask(
    call: Caller, route: ApiRoute, key: str | None, topic: str = "orders"
) -> httpx.Response:
    path = route.path.format(
        topic=topic, group="g", schedule="s", connection="999", key="k", address="0a" * 16,
        key_id="k", letter="0", setting="auto_create",
    )  # fmt: skip
    if name_of(route) == "request":
        path += "?timeout=0"
    return await call(route.method, f"/api/v1{path}", BODIES.get(name_of(route)), key=key)


def sufficient(needs: str) -> list[list[tuple[str, str]]]:
    """Grants each of which is just enough."""
    match needs:
        case "broker":
            return [[(">", "administer")]]
        case "key":
            return [[]]
        case "see":
            return [[("orders", permission)] for permission in PERMISSIONS]
        case "look":
            return [[("orders", "consume")], [("orders", "administer")]]
        case _:
            return [[("orders", needs)], [("*", needs)]]


def insufficient(needs: str) -> list[list[tuple[str, str]]]:
    """Grants each of which is a great deal, and not enough."""
    everything = " ".join(PERMISSIONS)
    elsewhere = [("other.>", everything), ("orders.>", everything)]
    match needs:
        case "broker":
            return [
                [("*", everything), *elsewhere],
                [(">", "publish consume"), ("orders", everything)],
            ]
        case "key":
            return []
        case "see":
            return [[], elsewhere]
        case "look":
            return [[], [*elsewhere, ("orders", "publish")]]
        case _:
            others = " ".join(one for one in PERMISSIONS if one != needs)
            return [[], [*elsewhere, ("orders", others)]]


@EACH
async def test_without_a_key_or_with_a_wrong_one_nothing_is_told(
    call: Caller, route: ApiRoute
) -> None:
    for key in (None, "wrong", ""):
        response = await ask(call, route, key)
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == 'Bearer realm="flintmq"'
        assert response.json()["error"]["kind"] == "NotAuthenticated"
        assert response.text == (await ask(call, route, key, "missing")).text


@EACH
async def test_a_key_without_the_permission_is_refused_whether_or_not_there_is_such_a_topic(
    call: Caller, gate: KeyGate, route: ApiRoute
) -> None:
    for number, grants in enumerate(insufficient(NEEDS[name_of(route)])):
        gate.add(f"without-{number}", *grants)
        there = await ask(call, route, f"without-{number}")
        missing = await ask(call, route, f"without-{number}", "missing")
        assert there.status_code == missing.status_code == 403
        assert there.json()["error"]["kind"] == "PermissionDenied"
        assert there.text.replace("orders", "missing") == missing.text


@EACH
async def test_a_key_with_the_permission_and_no_other_is_enough(
    call: Caller, gate: KeyGate, broker: Broker, route: ApiRoute
) -> None:
    # Of what is settled twice, the second time is too late; but it was allowed.
    expected: tuple[int, ...] = (404,) if name_of(route) in NOT_THERE else (200,)
    if name_of(route) in NOT_DONE:
        expected = (400,)
    if name_of(route) in ("nack", "reject"):
        expected = (200, 409)
    if name_of(route) == "request":
        expected = (404, 504)  # it may be sent, but nobody replies
    if name_of(route) == "redrive_edited":
        expected = (409,)  # there is no such dead letter
    if name_of(route) in ("stream", "stream_samples"):
        expected = (501,)  # it needs a socket, which there is none of here
    for number, grants in enumerate(sufficient(NEEDS[name_of(route)])):
        await furnish(broker)
        gate.add(f"with-{number}", *grants)
        response = await ask(call, route, f"with-{number}")
        assert response.status_code in expected, response.text


@pytest.mark.parametrize("permission", PERMISSIONS)
async def test_any_permission_on_a_topic_lets_one_see_it(
    call: Caller, gate: KeyGate, permission: str
) -> None:
    gate.add("some", ("orders", permission))
    assert (await call.ok("GET", "/topics/orders", key="some"))["name"] == "orders"


async def test_a_list_shows_what_the_key_may_see_and_pages_hide_the_rest(
    call: Caller, gate: KeyGate, broker: Broker
) -> None:
    for name in ("a.1", "a.2", "b.1", "b.2", "c"):
        await broker.create_topic(name, {})
    gate.add("some", ("b.*", "publish"), ("c", "consume"))

    page = await call.ok("GET", "/topics?limit=2&stats=true", key="some")
    assert ([one["name"] for one in page["topics"]], page["after"]) == (["b.1", "b.2"], "b.2")
    rest = await call.ok("GET", "/topics?limit=2&after=b.2", key="some")
    assert ([one["name"] for one in rest["topics"]], rest["after"]) == (["c"], None)


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_dead_letters_go_only_where_the_key_may_publish(
    call: Caller, gate: KeyGate, method: str
) -> None:
    gate.add("some", ("orders", "administer"), ("graves", "publish"))
    options = {"dead_letter_topic": "payments"}
    answer = await call.error(method, "/topics/orders", options, key="some")
    assert answer == (403, "PermissionDenied")
    await call.ok("PATCH", "/topics/orders", {"dead_letter_topic": "graves"}, key="some")


async def test_a_partition_is_its_topics(call: Caller, gate: KeyGate, broker: Broker) -> None:
    await broker.create_topic("rows", {"partitions": 2})
    gate.add("some", ("rows", "consume"))
    await call.ok("GET", "/topics/rows%2F1/messages", key="some")
    gate.add("none", ("orders", "consume"))
    answer = await call.error("GET", "/topics/rows%2F1/messages", key="none")
    assert answer == (403, "PermissionDenied")


async def test_a_key_is_asked_for_before_anything_of_the_request_is_looked_at(
    call: Caller,
) -> None:
    bad = await call("POST", "/api/v1/topics/orders/messages?x=1", {"nonsense": 1}, key="wrong")
    assert bad.status_code == 401


async def test_the_scheme_is_bearer_in_any_case(call: Caller) -> None:
    for header, status in (
        ("bearer admin-key", 200),
        ("BEARER  admin-key ", 200),
        ("Basic admin-key", 401),
        ("admin-key", 401),
        ("Bearer", 401),
    ):
        response = await call("GET", "/api/v1/topics", key=None, headers={"authorization": header})
        assert response.status_code == status, header


async def test_a_broker_that_asks_nobody_takes_any_scheme(broker: Broker) -> None:
    state = HttpState(broker, ApiKeyGate(), None, "1")
    pages = Pages(state, api_routes(state), HttpLimits())
    transport = httpx.ASGITransport(app=pages)
    async with httpx.AsyncClient(transport=transport, base_url="http://flint") as client:
        answer = await client.get("/api/v1/topics", headers={"authorization": "Basic eDp5"})
    assert answer.status_code == 200


async def test_there_is_no_page_beside_those_that_have_a_rule(state: HttpState) -> None:
    """`/api` is the table above; `/metrics` has tests of its own; the rest is for everybody."""
    server = HttpServer(state, routes=api_routes(state))

    pages = {getattr(route, "path", "/api") for route in server.pages._router.routes}
    always = {"/health", "/healthz", "/ready", "/readyz", "/flintmq.js", "/flintmq.d.ts"}
    console = {"/", "/console/{version}/{path:path}"}
    assert pages == {"/api", "/metrics", "/openapi.json"} | always | console
