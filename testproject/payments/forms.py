"""Validation for the plain views; serializers.py validates for the DRF views."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from django import forms

from .network import CARDS

if TYPE_CHECKING:
    from django.http import HttpRequest

LARGEST_AMOUNT = 99_999_999
CURRENCIES = ("eur", "inr", "jpy", "usd")


class ChargeForm(forms.Form):
    amount = forms.IntegerField(min_value=1, max_value=LARGEST_AMOUNT)
    currency = forms.ChoiceField(choices=[(code, code) for code in CURRENCIES])
    card = forms.ChoiceField(choices=[(name, name) for name in CARDS], required=False)

    @classmethod
    def of(cls, request: HttpRequest) -> ChargeForm:
        """Read a JSON object or a posted form."""
        if request.content_type != "application/json":
            return cls(request.POST)
        try:
            body = json.loads(request.body)
        except ValueError:
            body = None
        return cls(body if isinstance(body, dict) else {})

    def clean_card(self) -> str:
        return self.cleaned_data["card"] or "tok_visa"
