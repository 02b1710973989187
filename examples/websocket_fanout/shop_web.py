"""A web application that publishes orders and streams them to every connected browser.

uvicorn shop_web:api, with the broker in FLINTMQ_SERVER.
"""

from fastapi import FastAPI, WebSocket
from pydantic import BaseModel

import flintmq
from flintmq.adapters.fastapi import EventStream, Streams

shop = flintmq.App()
streams = Streams(shop)
api = FastAPI(lifespan=streams.lifespan)


class Order(BaseModel):
    id: int
    amount: float


@api.post("/orders")
async def create(order: Order) -> dict[str, int]:
    receipt = await shop.publish("orders", order.model_dump(), key=str(order.id))
    return {"offset": receipt.offset}


@api.get("/orders/events")
async def events(after: int = -1) -> EventStream:
    return streams.events(shop.mq.reader("orders", start=after + 1))


@api.websocket("/orders/socket")
async def socket(socket: WebSocket) -> None:
    await streams.send(socket, shop.mq.live("orders"))
