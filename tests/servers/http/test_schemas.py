from __future__ import annotations

from flintmq.client.client import Client
from flintmq.engine.broker import Broker
from flintmq.serde.codec import Codec

from .conftest import Caller, KeyGate

PATH = "/api/v1/topics/orders/schemas"
FIRST = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}'
WRONG = FIRST.replace('"int"', '"string"')


async def test_a_schema_is_checked_added_and_listed(
    call: Caller, gate: KeyGate, broker: Broker
) -> None:
    gate.add("root", (">", "administer"))
    await Client(broker, Codec(), auto_create=True, timeout=None).create_topic("orders")

    added = await call("POST", PATH, {"schema": FIRST}, key="root")
    assert (added.status_code, added.json()["version"]) == (200, 1)
    verdict = await call("POST", f"{PATH}/check", {"schema": WRONG}, key="root")
    assert verdict.json() == {
        "compatible": False,
        "problems": ["it does not read version 1: field 'id': int cannot be read as string"],
    }
    refused = await call("POST", PATH, {"schema": WRONG}, key="root")
    assert refused.status_code == 400
    assert "not backward compatible" in refused.text
    for path in (PATH, "/api/v1/schemas"):
        listed = (await call("GET", path, None, key="root")).json()["schemas"]
        assert [(one["topic"], one["version"], one["id"]) for one in listed] == [
            ("orders", 1, added.json()["id"])
        ]
    assert (await call("GET", "/api/v1/topics/none/schemas", None, key="root")).status_code == 404
