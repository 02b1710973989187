"""Bills orders: failures are retried; an order that can never be billed becomes a dead letter.

python order_worker.py, with the broker in FLINTMQ_SERVER.
"""

import asyncio

import msgspec

import flintmq

app = flintmq.App()
attempts: dict[int, int] = {}


class Order(msgspec.Struct):
    id: int
    amount: float


class CardDeclined(Exception):
    """A retry would not help."""


@app.consumer(
    "orders", group="billing", retries=3, backoff=0.1, dead_on=CardDeclined, publish_to="invoices"
)
async def bill(order: Order) -> dict[str, float]:
    attempts[order.id] = attempts.get(order.id, 0) + 1
    if order.amount < 0:
        raise CardDeclined(f"order {order.id} has a negative amount")
    if order.id % 3 == 0 and attempts[order.id] < 3:
        raise ConnectionError("the payment service does not answer")
    return {"order": order.id, "total": round(order.amount * 1.19, 2)}


if __name__ == "__main__":
    asyncio.run(app.run())
