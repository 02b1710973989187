"""The program under test: it weighs parcels and forwards those that are too heavy."""

import msgspec

import flintmq

app = flintmq.App("flint://localhost:7600")


class Parcel(msgspec.Struct):
    id: int
    kilograms: float


@app.consumer("parcels", group="scales", retries=3, backoff=60, publish_to="weighed")
async def weigh(parcel: Parcel, mq: flintmq.Client) -> int | None:
    if parcel.kilograms > 30:
        await mq.publish("too-heavy", {"id": parcel.id})
        return None
    if not parcel.kilograms:
        raise ValueError(f"the scales show nothing for parcel {parcel.id}")
    return parcel.id


@app.cron("0 18 * * *")
async def close_the_day() -> None:
    await app.publish("days", "closed")
