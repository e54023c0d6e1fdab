from django.db import migrations, models

import django_idempotency.models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="AuditEvent",
            fields=[
                (
                    "id",
                    models.BigAutoField(primary_key=True, serialize=False, verbose_name="position"),
                ),
                ("record", models.UUIDField(verbose_name="record")),
                ("scope", models.CharField(max_length=255, verbose_name="scope")),
                ("key", models.CharField(max_length=255, verbose_name="key")),
                ("at", django_idempotency.models.InstantField(verbose_name="time")),
                ("event", models.CharField(max_length=32, verbose_name="event")),
                ("attempt", models.PositiveIntegerField(default=0, verbose_name="attempt")),
                ("outcome", models.CharField(blank=True, max_length=64, verbose_name="outcome")),
                ("request", models.CharField(blank=True, max_length=255, verbose_name="request")),
                ("owner", models.CharField(blank=True, max_length=12, verbose_name="owner")),
                ("actor", models.CharField(blank=True, max_length=255, verbose_name="actor")),
                (
                    "request_id",
                    models.CharField(blank=True, max_length=128, verbose_name="request id"),
                ),
                ("reason", models.CharField(blank=True, max_length=500, verbose_name="reason")),
                ("sealed", models.BinaryField(null=True, verbose_name="sealed")),
            ],
            options={
                "verbose_name": "audit event",
                "verbose_name_plural": "audit events",
                "db_table": "django_idempotency_audit_event",
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(fields=["record", "id"], name="idempotency_audit_timeline"),
                    models.Index(fields=["at"], name="idempotency_audit_purge"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Reference",
            fields=[
                (
                    "id",
                    models.BigAutoField(primary_key=True, serialize=False, verbose_name="position"),
                ),
                ("record", models.UUIDField(verbose_name="record")),
                ("scope", models.CharField(max_length=255, verbose_name="scope")),
                ("key", models.CharField(max_length=255, verbose_name="key")),
                ("operation", models.UUIDField(verbose_name="operation")),
                ("kind", models.CharField(max_length=64, verbose_name="kind")),
                ("value_hash", models.UUIDField(verbose_name="hash of the value")),
                ("value", models.CharField(blank=True, max_length=255, verbose_name="value")),
                ("sealed", models.BinaryField(null=True, verbose_name="sealed")),
                ("at", django_idempotency.models.InstantField(verbose_name="time")),
            ],
            options={
                "verbose_name": "reference",
                "verbose_name_plural": "references",
                "db_table": "django_idempotency_audit_reference",
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(fields=["value_hash", "kind"], name="idempotency_audit_reference"),
                    models.Index(fields=["at"], name="idempotency_audit_ref_purge"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("record", "operation", "value_hash", "kind"),
                        name="idempotency_audit_ref_once",
                    )
                ],
            },
        ),
    ]
