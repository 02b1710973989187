"""The table of the outbox."""

from __future__ import annotations

from django.db import models


class OutboxMessage(models.Model):
    """A message that is committed, or about to be, and is not published yet."""

    id = models.BigAutoField(primary_key=True)
    producer = models.CharField(max_length=32)
    sequence = models.BigIntegerField()
    topic = models.CharField(max_length=255)
    format = models.CharField(max_length=8)
    value = models.BinaryField()
    key = models.TextField(null=True)
    headers = models.TextField(null=True)
    priority = models.SmallIntegerField(default=0)

    class Meta:
        db_table = "flintmq_outbox"

    def __str__(self) -> str:
        return f"{self.topic} {self.producer} {self.sequence}"
