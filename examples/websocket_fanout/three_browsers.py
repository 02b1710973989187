"""Three browsers connect by WebSocket, an order is posted, and a fourth reads what it missed."""

import asyncio
import socket

import httpx
import uvicorn
import websockets
from shop_web import api


async def main() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{listening.getsockname()[1]}"
    server = uvicorn.Server(uvicorn.Config(api, log_level="warning"))
    serving = asyncio.create_task(server.serve([listening]))

    url = f"ws://{address}/orders/socket"
    async with (
        websockets.connect(url) as one,
        websockets.connect(url) as two,
        websockets.connect(url) as three,
        httpx.AsyncClient(base_url=f"http://{address}") as http,
    ):
        print("posted:", (await http.post("/orders", json={"id": 42, "amount": 9.5})).json())
        for browser in (one, two, three):
            print("by WebSocket:", await browser.recv())
        async with http.stream("GET", "/orders/events?after=-1") as response:
            async for line in response.aiter_lines():
                if line.startswith("data:"):
                    print("as an event:", line)
                    break
    server.should_exit = True
    await serving


if __name__ == "__main__":
    asyncio.run(main())
