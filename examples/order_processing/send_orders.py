"""Sends six orders, and prints the resulting invoices and the dead letter."""

import asyncio

import flintmq


async def main() -> None:
    async with flintmq.connect() as mq:
        for number in range(1, 6):
            await mq.publish("orders", {"id": number, "amount": 10.0 * number}, key=str(number))
        await mq.publish("orders", {"id": 6, "amount": -1.0}, key="6")

        async with mq.subscribe("invoices", "printer") as invoices:
            found = [(await invoices.read()).decode() for _ in range(5)]
        for invoice in sorted(found, key=lambda one: int(one["order"])):
            print(f"invoice for order {invoice['order']}: {invoice['total']:.2f}")
        letters: list[flintmq.DeadLetter] = []
        while not letters:
            await asyncio.sleep(0.05)
            letters = await mq.dead_letters("orders", "billing")
        print(f"dead letter: {letters[0].reason}")


if __name__ == "__main__":
    asyncio.run(main())
