"""Whether this node still leads, at this moment: asked before anything is handed out.

A node alone always does, and has no check. In a cluster another may lead already while the news is
on its way; two leaders must not hand out the same message.
"""

from __future__ import annotations

import asyncio
from typing import Protocol


class LeadCheck(Protocol):
    def check(self) -> None:
        """Raises NotLoaded where others have to be asked first: ask again once that is done."""

    async def confirm(self) -> None:
        """Wait until it is certain. Raises NotLeader."""


def check_lead(lead: LeadCheck | None) -> None:
    if lead is not None:
        lead.check()


async def confirmed(done: asyncio.Future[None], lead: LeadCheck | None) -> None:
    """Wait until something is done, and it is certain that nobody else leads then."""
    await done
    if lead is not None:
        await lead.confirm()
