"""Webhooks over HTTP: what is asked and answered, and how."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ...client.webhook_verbs import WebhookVerbs
from ...group_model import Order
from ...webhook_model import CONCURRENCY_MAX, TIMEOUT_MAX, Webhook, WebhookAnswer, WebhookState
from .consuming import group_of
from .desk import ApiCall, Desk
from .models import Asked, Done
from .shown import Model


class CreateWebhook(Asked):
    """`order`, `filter` and `start` are those of the group, which is made if need be."""

    url: str
    secret: str | None = None
    """Signs requests: `whsec_` and 16 to 64 bytes in base64. Without one, a secret is made."""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    concurrency: Annotated[int, Meta(ge=1, le=CONCURRENCY_MAX)] = 4
    rate: Annotated[float, Meta(gt=0)] | None = None
    """Maximum requests per second."""
    timeout: Annotated[float, Meta(gt=0, le=TIMEOUT_MAX)] = 15.0
    """Seconds to wait for an answer."""
    retries: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    backoff: Annotated[float, Meta(ge=0, le=86_400)] = 1.0
    backoff_max: Annotated[float, Meta(ge=0, le=86_400)] = 300.0
    order: Order | None = None
    filter: str | None = None
    start: Literal["earliest", "latest"] | None = None
    replace: bool = False
    """Whether to change the webhook if there is one with other settings."""


class CreatedWebhook(Model):
    topic: str
    group: str
    url: str
    secret: str
    """Shown here only: the target needs it to verify requests."""


class WebhookPage(Model):
    """Settings and state. The secret and the values of headers are not shown."""

    settings: WebhookSettings
    state: WebhookState


class WebhookSettings(Model):
    url: str
    headers: list[str]
    """Their names."""
    concurrency: int
    rate: float | None
    timeout: float
    retries: int | None
    backoff: float
    backoff_max: float
    paused: bool


class WebhookList(Model):
    webhooks: list[WebhookState]


async def all_webhooks(desk: Desk, call: ApiCall) -> WebhookList:
    return WebhookList(webhooks=await desk.broker.webhook_states(None))


async def webhooks_of_topic(desk: Desk, call: ApiCall) -> WebhookList:
    await desk.broker.topic_info(call.path["topic"])  # raises if there is none
    return WebhookList(webhooks=await desk.broker.webhook_states(call.path["topic"]))


async def webhook(desk: Desk, call: ApiCall) -> WebhookPage:
    topic, group = call.path["topic"], group_of(call)
    found = await WebhookVerbs(desk.broker).webhook(topic, group)
    states = await desk.broker.webhook_states(topic)
    shown: dict[str, object] = {
        name: getattr(found, name) for name in WebhookSettings.__struct_fields__
    }
    shown["headers"] = sorted(found.headers)
    return WebhookPage(
        settings=msgspec.convert(shown, WebhookSettings),
        state=next(one for one in states if one.group == group),
    )


async def create_webhook(desk: Desk, call: ApiCall) -> CreatedWebhook:
    asked: CreateWebhook = call.body
    said = {
        name: value
        for name in CreateWebhook.__struct_fields__
        if (value := getattr(asked, name)) is not None
    }
    made: Webhook = await WebhookVerbs(desk.broker).create_webhook(
        call.path["topic"], group=group_of(call), **said
    )
    return CreatedWebhook(topic=made.topic, group=made.group, url=made.url, secret=made.secret)


async def delete_webhook(desk: Desk, call: ApiCall) -> Done:
    verbs, topic, group = WebhookVerbs(desk.broker), call.path["topic"], group_of(call)
    await verbs.webhook(topic, group)  # raises if there is none
    await verbs.delete_webhook(topic, group)
    return Done()


async def pause_webhook(desk: Desk, call: ApiCall) -> Done:
    await WebhookVerbs(desk.broker).pause_webhook(call.path["topic"], group_of(call))
    return Done()


async def resume_webhook(desk: Desk, call: ApiCall) -> Done:
    await WebhookVerbs(desk.broker).resume_webhook(call.path["topic"], group_of(call))
    return Done()


async def test_webhook(desk: Desk, call: ApiCall) -> WebhookAnswer:
    return await desk.broker.test_webhook(call.path["topic"], group_of(call))
