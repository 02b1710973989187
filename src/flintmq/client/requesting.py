"""Request and reply: a message that waits for its answer, over a private address."""

from __future__ import annotations

import secrets
from typing import Unpack

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

        Members of queue groups on the topic get the request, each group one copy, stored like any
        message; where there are none, live feeds get it, not stored. Answer it with
        `message.reply(value)`. Nobody there: NoResponders, at once, and nothing was published.
        No reply within `timeout` seconds (by default the connection's): NoReply. By then the
        request has expired too, so a responder that comes late does not see it.

        The reply address is random and used once: a reply reaches this call or nobody. If the
        broker is restarted meanwhile, OutcomeUnknown says that the reply is lost.
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

        Whether the request was still waiting: False if it had a reply already, was given up, or
        its time was over. A message of a queue has to be acknowledged as well.
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
    message = dict(said)
    message.pop("partition", None)
    message.pop("auto_create", None)
    return message  # type: ignore[return-value]
