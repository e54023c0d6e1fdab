import uuid

import django.core.serializers.json
from django.db import migrations, models

import django_idempotency.models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Message",
            fields=[
                (
                    "id",
                    models.BigAutoField(primary_key=True, serialize=False, verbose_name="position"),
                ),
                (
                    "message_id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, unique=True, verbose_name="message id"
                    ),
                ),
                ("topic", models.CharField(max_length=255, verbose_name="topic")),
                (
                    "key",
                    models.CharField(
                        blank=True,
                        help_text="Messages with the same key are published in order; those "
                        "without "
                        "a key in any order.",
                        max_length=255,
                        verbose_name="key",
                    ),
                ),
                (
                    "payload",
                    models.JSONField(
                        encoder=django.core.serializers.json.DjangoJSONEncoder,
                        null=True,
                        verbose_name="payload",
                    ),
                ),
                (
                    "headers",
                    models.JSONField(
                        blank=True,
                        default=dict,
                        encoder=django.core.serializers.json.DjangoJSONEncoder,
                        verbose_name="headers",
                    ),
                ),
                ("created_at", django_idempotency.models.InstantField(verbose_name="created")),
                (
                    "attempts",
                    models.PositiveIntegerField(default=0, verbose_name="failed attempts"),
                ),
                (
                    "last_error",
                    models.CharField(blank=True, max_length=255, verbose_name="last error"),
                ),
                (
                    "not_before",
                    django_idempotency.models.InstantField(
                        help_text="It failed, and is retried after this time.",
                        null=True,
                        verbose_name="not before",
                    ),
                ),
            ],
            options={
                "verbose_name": "message",
                "verbose_name_plural": "messages",
                "db_table": "django_idempotency_message",
                "permissions": (("retry_message", "Can retry messages at once"),),
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(fields=["not_before", "id"], name="idempotency_outbox_due"),
                    models.Index(fields=["key", "not_before", "id"], name="idempotency_outbox_key"),
                ],
            },
        )
    ]
