"""Request and reply: a message that waits for its answer, over a private address."""

from __future__ import annotations

import secrets
from typing import Any, Unpack

from ..errors import InvalidRequest
from ..model import REPLY_TO, Seconds
from ..rows import Message
from .context import ClientContext
from .keywords import MessageKeywords, RequestKeywords, check_keywords, takes
from .sending import Sender
from .values import Encoder, Value, said_of_one


class Requesting:
    def __init__(self, context: ClientContext, encoder: Encoder, sender: Sender) -> None:
        self._context, self._encoder, self._sender = context, encoder, sender
        self._broker = context.broker

    @takes(RequestKeywords)
    async def request(
        self,
        topic: str,
        value: Value,
        *,
        timeout: Seconds | None = None,
        **said: Unpack[RequestKeywords],
    ) -> Message:
        """Send a request and return the first reply, a message: `reply.decode()` is its value.

        Each group on the topic gets the request once, stored like any message. If there are no
        groups, live feeds get it, not stored. They answer with `message.reply(value)`. If nobody
        subscribes, NoResponders is raised immediately, and nothing is published. If no reply
        arrives within `timeout` seconds (default: that of the connection), NoReply is raised; the
        request has then expired too, so responders do not see it any more.

        The reply address is random and used once. If the broker is restarted meanwhile,
        OutcomeUnknown is raised.
        """
        check_keywords("request", said, RequestKeywords)
        self._context.check_open()
        patience = self._context.patience(timeout)
        row, settings = said_of_one("request", _of_message(said), MessageKeywords)
        address = secrets.token_hex(16)
        row = row._replace(headers={**(row.headers or {}), REPLY_TO: address})
        if patience and row.ttl is None:
            row = row._replace(ttl=patience)
        options = self._broker.known_options(topic)
        plan = self._encoder.plan(topic, options, settings)
        rows = self._encoder.one(value, plan, row, self._context.clock.now_ms())
        ((plain, part),) = self._sender.routed(topic, rows, options, said.get("partition"))
        may_create = self._context.may_create(said.get("auto_create"))
        found = await self._broker.request(plain, address, part, patience, may_create)
        return found[0]

    @takes(MessageKeywords)
    async def reply(self, message: Message, value: Value, **said: Unpack[MessageKeywords]) -> bool:
        """Reply to a request; `message.reply(value)` does the same.

        Returns whether the request was still waiting: False if it already had a reply, was given
        up, or has expired. If the request came from a group, acknowledge it too.
        """
        self._context.check_open()
        address = message.headers.get(REPLY_TO)
        if not isinstance(address, str):
            raise InvalidRequest(
                f"{message!r} is not a request: only messages sent by request() can be replied to"
            )
        row, settings = said_of_one("reply", said, MessageKeywords)
        options = self._broker.known_options(message.topic)
        plan = self._encoder.plan(message.topic, options, settings)
        rows = self._encoder.one(value, plan, row, self._context.clock.now_ms())
        return await self._broker.reply(address, rows)


def _of_message(said: RequestKeywords) -> MessageKeywords:
    given: Any = dict(said)
    given.pop("partition", None)
    given.pop("auto_create", None)
    message: MessageKeywords = given
    return message
