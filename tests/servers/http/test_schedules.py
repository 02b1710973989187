"""Schedules over HTTP."""

from __future__ import annotations

from flintmq.client.client import Client
from flintmq.engine.broker import Broker
from flintmq.serde.codec import Codec

from .conftest import Caller, KeyGate

PATH = "/api/v1/topics/orders/schedules/nightly"


async def test_a_schedule_is_made_looked_at_run_paused_and_deleted(
    call: Caller, gate: KeyGate, broker: Broker
) -> None:
    gate.add("root", (">", "administer"))
    mq = Client(broker, Codec(), auto_create=True, timeout=None)
    await mq.create_topic("orders")
    await mq.create_topic("others")

    made = await call("PUT", PATH, {"cron": "0 2 * * *", "value": {"a": 1}}, key="root")
    assert made.json()["when"] == "0 2 * * * UTC"
    again = await call("PUT", PATH, {"every": 5}, key="root")
    assert again.status_code == 400
    assert "replace" in again.text
    assert (await call("PUT", PATH, {"every": 5, "replace": True}, key="root")).status_code == 200
    elsewhere = PATH.replace("orders", "others")
    assert (await call("PUT", elsewhere, {"every": 5}, key="root")).status_code == 400
    assert (await call("DELETE", elsewhere, None, key="root")).status_code == 404

    assert (await call("POST", f"{PATH}/run", None, key="root")).json()["offset"] == "0"
    assert (await call("POST", f"{PATH}/pause", None, key="root")).status_code == 200
    assert (await call("GET", PATH, None, key="root")).json()["paused"] is True
    assert (await call("POST", f"{PATH}/resume", None, key="root")).status_code == 200
    for where in ("/api/v1/schedules", "/api/v1/topics/orders/schedules"):
        [listed] = (await call("GET", where, None, key="root")).json()["schedules"]
        assert (listed["name"], listed["paused"]) == ("nightly", False)
    assert (await call("DELETE", PATH, None, key="root")).status_code == 200
    assert (await call("GET", PATH, None, key="root")).status_code == 404


async def test_what_is_no_schedule_is_refused_with_its_reason(
    call: Caller, gate: KeyGate, broker: Broker
) -> None:
    gate.add("root", (">", "administer"))
    mq = Client(broker, Codec(), auto_create=True, timeout=None)
    await mq.create_topic("orders")
    for body in ({}, {"cron": "now"}, {"every": 0}, {"every": 1, "missed": "never"}):
        assert (await call("PUT", PATH, body, key="root")).status_code == 400
    missing = await call("PUT", PATH.replace("orders", "none"), {"every": 1}, key="root")
    assert missing.status_code == 404
