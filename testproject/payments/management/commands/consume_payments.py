"""Take messages from RabbitMQ until the connection ends."""

from __future__ import annotations

from typing import Any

import pika
from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from django_idempotency.contrib.batches.messages import LIMIT
from testproject.payments import messages
from testproject.payments.consumer import consume
from testproject.payments.network import Declined


class Command(BaseCommand):
    help = "Carry out the payments that come as messages."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--queue", default="payments")
        parser.add_argument(
            "--limit", type=int, default=LIMIT, help="After so many failures it is a dead letter."
        )

    def handle(self, *, queue: str, limit: int, **options: Any) -> None:
        with pika.BlockingConnection(pika.URLParameters(settings.RABBITMQ_URL)) as connection:
            consume(connection.channel(), queue, messages.charge, limit=limit, answers=Declined)
