"""What the handlers of the JSON API share: the broker, and what they remember of it."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Any, NamedTuple

from starlette.requests import Request

from ...access import Access
from ...client.client import Client
from ...errors import TopicNotFound
from ...model import TopicOptions
from ...net.server.publishing import Draining
from ...patterns import matches
from ...serde.codec import Codec
from . import models
from .console.sampler import Sampler
from .patience import PATIENCE, Patience
from .seats import GroupSeats
from .state import HttpState

PAGE = 256
"""How many names are taken from the list of topics at a time: it may change meanwhile."""
HEADERS = "flintmq.headers"
"""Where the scope of a request has them once they were asked for."""
STEP_SECONDS = 0.0005
"""How long a walk goes on before others have their turn."""
TOTALS_SECONDS = 1.0
"""How old totals may be: asking for them is a walk over all topics."""


class ApiCall(NamedTuple):
    """A request that may be carried out."""

    access: Access
    path: Mapping[str, str]
    query: Any
    body: Any
    request: Request
    """For what reads its body or writes its answer by itself."""

    @property
    def headers(self) -> dict[str, str]:
        """Names are in lower case; of one that is there twice, the first."""
        scope = self.request.scope
        found: dict[str, str] | None = scope.get(HEADERS)
        if found is None:
            said = reversed(scope["headers"])
            found = {name.decode("latin-1"): value.decode("latin-1") for name, value in said}
            scope[HEADERS] = found
        return found

    @property
    def patience(self) -> Patience:
        found: Patience = self.request.scope[PATIENCE]
        return found


class Walk:
    """Something long, in steps."""

    def __init__(self) -> None:
        self._began = perf_counter()

    async def step(self) -> None:
        """Let others have their turn, if it is time."""
        if perf_counter() - self._began >= STEP_SECONDS:
            await asyncio.sleep(0)
            self._began = perf_counter()


class Desk:
    """What the handlers share: the broker, and what they remember of it."""

    def __init__(self, state: HttpState) -> None:
        self.state = state
        self.broker = state.broker
        self.client = Client(state.broker, Codec(), auto_create=True, timeout=None)
        self.seats = GroupSeats(state.broker)
        state.closers.append(self.seats.close)
        self.sampler = Sampler(state)
        self._names: list[str] | None = None
        self._listing = False
        self._totals: tuple[float, models.Totals] | None = None
        self._adding: asyncio.Task[models.Totals] | None = None

    @property
    def wait_seconds(self) -> float:
        """How long a request may wait for messages."""
        return self.state.wait_seconds()

    async def names(self) -> list[str]:
        """The names of all topics, sorted; kept as they come and go."""
        if self._names is None:
            if not self._listing:
                self._listing = True
                self.broker.on_topic_changed(self._topic_changed)
            found = await self.broker.topics(">")
            if self._names is None:
                self._names = found
        return self._names

    def _topic_changed(self, name: str, options: TopicOptions | None) -> None:
        names = self._names
        if names is None:
            return
        place = bisect_left(names, name)
        is_known = place < len(names) and names[place] == name
        if options is None and is_known:
            del names[place]
        elif options is not None and not is_known:
            insort(names, name)

    async def totals(self) -> models.Totals:
        """Sums over all topics. Whoever asks at the same time shares the walk."""
        now = self.broker.clock.monotonic()
        if self._totals is not None and now - self._totals[0] < TOTALS_SECONDS:
            return self._totals[1]
        if self._adding is None:
            self._adding = asyncio.get_running_loop().create_task(self._add_up())
            # Whoever asked may have left: then nobody has to hear that it failed.
            self._adding.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._adding)

    async def _add_up(self) -> models.Totals:
        try:
            messages = size = published = delivered = count = 0
            last, walk = "", Walk()
            while page := self._page(await self.names(), last):
                for name in page:
                    await walk.step()
                    try:
                        stats = await self.broker.topic_stats(name)
                    except TopicNotFound:
                        continue  # deleted meanwhile
                    count += 1
                    messages += stats.message_count
                    size += stats.byte_count
                    published += stats.published
                    delivered += stats.delivered
                last = page[-1]
            native = self.state.native
            totals = models.Totals(
                topics=count,
                messages=messages,
                bytes=size,
                published=published,
                delivered=delivered,
                connections=len(native.connections) if native is not None else 0,
            )
            self._totals = (self.broker.clock.monotonic(), totals)
            return totals
        finally:
            self._adding = None

    def _page(self, names: list[str], after: str) -> list[str]:
        place = bisect_right(names, after)
        return names[place : place + PAGE]

    async def list_topics(
        self, access: Access, pattern: str, after: str, limit: int
    ) -> tuple[list[str], bool]:
        """Up to `limit` names behind one that match and may be seen, and whether there are more."""
        found: list[str] = []
        walk = Walk()
        while page := self._page(await self.names(), after):
            for name in page:
                await walk.step()
                if matches(pattern, name) and access.sees(name):
                    if len(found) == limit:
                        return found, True
                    found.append(name)
            after = page[-1]
        return found, False

    def check_taking(self) -> None:
        native = self.state.native
        if native is not None and native.is_draining:
            raise Draining("the broker is stopping")


Handler = Callable[[Desk, ApiCall], Awaitable[Any]]
