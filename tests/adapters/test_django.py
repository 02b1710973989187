"""A Django project with FlintMQ: settings, a signal, and the outbox beside the ORM."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_SECONDS
from tests.serving import serving

from .processes import ran, started

pytestmark = pytest.mark.slow

FILES = {
    "manage.py": """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
""",
    "settings.py": """
import os
SECRET_KEY = "not secret"
USE_TZ = True
INSTALLED_APPS = ["flintmq.adapters.django", "shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}}
FLINTMQ = {"url": os.environ["BROKER"]}
""",
    "shop/__init__.py": "",
    "shop/models.py": """
from django.db import models
from django.db.models.signals import post_save
from django.dispatch import receiver
from flintmq.adapters.django import publish

class Order(models.Model):
    id = models.BigAutoField(primary_key=True)
    amount = models.IntegerField()

    class Meta:
        app_label = "shop"

@receiver(post_save, sender=Order)
def tell(sender, instance, created, **said):
    publish("orders", {"id": instance.pk, "created": created}, key=str(instance.pk))
""",
    "program.py": """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
import django
django.setup()
from django.db import transaction
from flintmq.adapters.django import get_mq
from flintmq.adapters.django.models import OutboxMessage
from shop.models import Order

with transaction.atomic():
    order = Order.objects.create(amount=3)
    order.amount = 4
    order.save()
try:
    with transaction.atomic():
        Order.objects.create(amount=5)
        raise ValueError
except ValueError:
    pass
print(OutboxMessage.objects.count())
get_mq().publish("direct", "hello")
assert get_mq() is get_mq()
if child := os.fork():
    assert os.waitpid(child, 0)[1] == 0
else:
    get_mq().publish("direct", "from a child")
    get_mq().close()
    os._exit(0)
print(get_mq().topic_stats("direct").message_count)
""",
}


def test_rows_and_messages_commit_together(tmp_path: Path) -> None:
    import flintmq

    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    python = sys.executable
    with serving(tmp_path / "data") as url:
        manage = [python, "manage.py"]
        ran([*manage, "migrate", "--run-syncdb", "--verbosity", "0"], tmp_path, BROKER=url)
        ran([*manage, "makemigrations", "flintmq", "--check"], tmp_path, BROKER=url)
        assert (
            ran([python, "-W", "error::ResourceWarning", "program.py"], tmp_path, BROKER=url)
            == "2\n2\n"
        )

        printed = ran([*manage, "flintmq_relay", "--once"], tmp_path, BROKER=url)
        assert printed == "2 messages published\n"
        with flintmq.connect_sync(url) as mq:
            orders = [one.decode() for one in mq.poll("orders", "test", 10, wait=PATIENCE_SECONDS)]
            assert orders == [{"id": 1, "created": True}, {"id": 1, "created": False}]

            with started(
                [*manage, "flintmq_relay"], tmp_path, log="relay.log", BROKER=url
            ) as relay:
                ran([python, "program.py"], tmp_path, BROKER=url)
                assert mq.poll("orders", "test", 1, wait=PATIENCE_SECONDS)
                relay.terminate()
                assert relay.wait(PATIENCE_SECONDS) == 0


def test_settings_that_are_none_say_what_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.conf import settings

    from flintmq.adapters.django import connecting
    from flintmq.errors import InvalidRequest

    if not settings.configured:
        settings.configure()
    assert connecting() == {}
    monkeypatch.setattr(settings, "FLINTMQ", "flint://localhost", raising=False)
    with pytest.raises(InvalidRequest, match="must be a dict"):
        connecting()
