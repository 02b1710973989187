"""Topic and group names as arguments. The shell completes them by asking the broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from .shared import ParamType

if TYPE_CHECKING:
    from ..client.client import Client

PATIENCE_SECONDS = 2.0
"""How long completion waits for the broker."""


class _NameArgument(ParamType):
    name = "text"

    def convert(self, value: Any, param: object, ctx: object) -> str:
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from .connecting import WHERE, run_async, target_of

        said = {name: ctx.params.get(name) for name in WHERE}

        async def ask() -> list[str]:
            async with asyncio.timeout(PATIENCE_SECONDS), target_of(**said).connect() as mq:
                return await self.known(mq, ctx)

        try:
            found = run_async(ask())
        except Exception:  # no broker, no right to look: a shell has no place for an error
            return []
        return [CompletionItem(one) for one in found if one.startswith(incomplete)]

    async def known(self, mq: Client, ctx: click.Context) -> list[str]:
        raise NotImplementedError


class TopicArgument(_NameArgument):
    async def known(self, mq: Client, ctx: click.Context) -> list[str]:
        return await mq.topics()


class GroupArgument(_NameArgument):
    """A group of the topic named before it."""

    async def known(self, mq: Client, ctx: click.Context) -> list[str]:
        # Before an option that has no value yet, click has not given its words to the arguments.
        topic = ctx.params.get("topic") or next(iter(ctx.args), None)
        return [] if topic is None else [group.name for group in await mq.groups(topic)]


TOPIC, GROUP = TopicArgument(), GroupArgument()
