"""The figures of webhooks on `/metrics`, at the node that delivers."""

from __future__ import annotations

from collections.abc import Callable

from ...webhook_model import WebhookState
from .exposition import families

Value = Callable[[WebhookState], float]


def _each(value: Value) -> Callable[[list[WebhookState]], dict[tuple[str, str], float]]:
    return lambda states: {(one.topic, one.group): value(one) for one in states}


# fmt: off
WEBHOOKS = families(
    ("topic", "group"),
    ("flintmq_webhook_delivered_total", "Messages accepted by the targets of webhooks.",
     _each(lambda one: one.delivered)),
    ("flintmq_webhook_retried_total", "Webhook requests that failed and are retried.",
     _each(lambda one: one.retried)),
    ("flintmq_webhook_dead_total", "Messages of webhooks that became dead letters.",
     _each(lambda one: one.dead)),
    ("flintmq_webhook_in_flight", "Webhook requests waiting for an answer.",
     _each(lambda one: one.in_flight)),
    ("flintmq_webhook_down", "1 if the target of a webhook is down: messages wait.",
     _each(lambda one: one.condition == "down")),
)
# fmt: on
