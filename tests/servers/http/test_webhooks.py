from __future__ import annotations

from flintmq.client.client import Client
from flintmq.engine.broker import Broker
from flintmq.serde.codec import Codec

from .conftest import Caller, KeyGate

PATH = "/api/v1/topics/orders/groups/crm/webhook"
URL = "https://crm.example/hook"


async def test_a_webhook_is_made_looked_at_paused_and_deleted(
    call: Caller, gate: KeyGate, broker: Broker
) -> None:
    gate.add("root", (">", "administer"))
    mq = Client(broker, Codec(), auto_create=True, timeout=None)
    await mq.create_topic("orders")

    made = await call("PUT", PATH, {"url": URL, "headers": {"x-key": "s3cret"}}, key="root")
    assert made.json()["secret"].startswith("whsec_")
    again = await call("PUT", PATH, {"url": "https://other.example/"}, key="root")
    assert again.status_code == 400
    assert "replace" in again.text

    shown = await call("GET", PATH, None, key="root")
    assert shown.json()["settings"]["headers"] == ["x-key"]
    assert "s3cret" not in shown.text
    assert "whsec_" not in shown.text
    assert (await call("POST", f"{PATH}/pause", None, key="root")).status_code == 200
    listed = (await call("GET", "/api/v1/webhooks", None, key="root")).json()["webhooks"]
    assert [(one["group"], one["condition"]) for one in listed] == [("crm", "paused")]
    assert (await call("DELETE", PATH, None, key="root")).status_code == 200
    assert (await call("GET", PATH, None, key="root")).status_code == 404


async def test_what_is_no_webhook_is_refused_with_its_reason(
    call: Caller, gate: KeyGate, broker: Broker
) -> None:
    gate.add("root", (">", "administer"))
    mq = Client(broker, Codec(), auto_create=True, timeout=None)
    await mq.create_topic("orders")
    for body in ({"url": "crm"}, {"url": URL, "secret": "x"}, {"url": URL, "timeout": 0}, {}):
        assert (await call("PUT", PATH, body, key="root")).status_code == 400
    missing = await call("PUT", "/api/v1/topics/none/groups/crm/webhook", {"url": URL}, key="root")
    assert missing.status_code == 404
