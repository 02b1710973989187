"""`manage.py flintmq_relay`: publishes what the outbox holds."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

from django.core.management.base import BaseCommand

from .....api import connect
from ... import connecting, relay


class RelayCommand(BaseCommand):
    """Examples: manage.py flintmq_relay; manage.py flintmq_relay --once."""

    help = "Publish the messages of the outbox to FlintMQ, until Ctrl-C or SIGTERM."

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--once", action="store_true", help="exit when the outbox is empty")
        parser.add_argument("--database", help="database alias; default: the default database")

    def handle(self, *_: Any, **said: Any) -> None:
        async def main() -> int:
            async with connect(**connecting()) as mq:
                work = asyncio.ensure_future(relay(mq, once=said["once"], using=said["database"]))
                loop = asyncio.get_running_loop()
                for number in (signal.SIGTERM, signal.SIGINT):
                    loop.add_signal_handler(number, work.cancel)
                try:
                    return await work
                except asyncio.CancelledError:
                    return -1

        count = asyncio.run(main())
        if count >= 0:
            self.stdout.write(f"{count} messages published")


Command = RelayCommand
