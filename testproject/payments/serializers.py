"""Validation for the DRF views, and the public form of a charge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rest_framework import serializers

from . import work
from .forms import CURRENCIES, LARGEST_AMOUNT
from .models import Charge, Effect, Refund
from .network import CARDS

if TYPE_CHECKING:
    from collections.abc import Mapping


class ChargeSerializer(serializers.ModelSerializer):
    amount = serializers.IntegerField(min_value=1, max_value=LARGEST_AMOUNT)
    currency = serializers.ChoiceField(choices=CURRENCIES)
    card = serializers.ChoiceField(choices=tuple(CARDS), default="tok_visa", write_only=True)

    class Meta:
        model = Charge
        fields = ("id", "amount", "currency", "card", "refunded")
        read_only_fields = ("refunded",)

    def create(self, validated_data: Mapping[str, Any]) -> Charge:
        return work.charge(**validated_data)


class RefundSerializer(serializers.ModelSerializer):
    amount = serializers.IntegerField(min_value=1, max_value=LARGEST_AMOUNT)

    class Meta:
        model = Refund
        fields = ("id", "charge", "amount")
        read_only_fields = ("charge",)

    def create(self, validated_data: Mapping[str, Any]) -> Refund:
        return work.refund(**validated_data)


class PayoutSerializer(serializers.Serializer):
    amount = serializers.IntegerField(min_value=1, max_value=LARGEST_AMOUNT)
    currency = serializers.ChoiceField(choices=CURRENCIES)


class EffectSerializer(serializers.ModelSerializer):
    class Meta:
        model = Effect
        fields = ("id", "label", "idempotency_key", "attempt", "created")
