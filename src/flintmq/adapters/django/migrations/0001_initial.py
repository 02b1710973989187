from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies: ClassVar[list[Any]] = []
    operations: ClassVar[list[Any]] = [
        migrations.CreateModel(
            name="OutboxMessage",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("producer", models.CharField(max_length=32)),
                ("sequence", models.BigIntegerField()),
                ("topic", models.CharField(max_length=255)),
                ("format", models.CharField(max_length=8)),
                ("value", models.BinaryField()),
                ("key", models.TextField(null=True)),
                ("headers", models.TextField(null=True)),
                ("priority", models.SmallIntegerField(default=0)),
            ],
            options={"db_table": "flintmq_outbox"},
        ),
    ]
