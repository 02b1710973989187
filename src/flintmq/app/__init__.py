"""Workers: functions that consume topics, run tasks and keep schedules.

app = flintmq.App("flint://localhost:7600")

@app.consumer("orders", group="billing", retries=4)
async def bill(order: Order) -> None: ...

`flintmq worker module:app` runs it. Everything here is written against the client's public verbs.
"""
