"""What Django asks of an app."""

from __future__ import annotations

from django.apps import AppConfig


class FlintAppConfig(AppConfig):
    """`flintmq.adapters.django` among INSTALLED_APPS."""

    name = "flintmq.adapters.django"
    label = "flintmq"
    verbose_name = "FlintMQ"
