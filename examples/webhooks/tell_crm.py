"""Starts the CRM, creates a webhook that sends orders to it, and publishes two."""

import asyncio
import threading
from http.server import ThreadingHTTPServer

from crm import Crm, is_signed

import flintmq


async def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Crm)
    threading.Thread(target=server.serve_forever).start()
    try:
        async with flintmq.connect() as mq:
            await mq.create_topic("orders")
            webhook = await mq.create_webhook(
                "orders", group="crm", url=f"http://127.0.0.1:{server.server_port}/", backoff=0.1
            )
            Crm.secret, Crm.known = webhook.secret or "", set()
            await mq.publish("orders", {"id": 1})
            await mq.publish("orders", {"id": 2})
            lag = 2
            while lag:
                await asyncio.sleep(0.05)
                lag = (await mq.group_stats("orders", "crm")).lag
            print("attempts:", Crm.attempts, "orders:", len(Crm.known))
            another = {"webhook-id": "1", "webhook-timestamp": "1", "webhook-signature": "v1,no"}
            print("told by somebody else:", is_signed(another, b"{}", Crm.secret))
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    asyncio.run(main())
