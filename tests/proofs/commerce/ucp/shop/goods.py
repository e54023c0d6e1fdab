"""The goods, rates and discounts of the shop, and what a checkout costs.

All amounts are in cents.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from rest_framework.exceptions import APIException

from .models import Address, Stock

#: What the suite's files call the parts of an address.
_ADDRESS = {
    "street_address": "street_address",
    "city": "address_locality",
    "state": "address_region",
    "postal_code": "postal_code",
    "country": "address_country",
}


class Refused(APIException):
    """The shop cannot do that."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status_code = status


@cache
def rows(name: str) -> list[dict[str, str]]:
    """Return the rows of one of the suite's files."""
    with Path(os.environ["COMMERCE_DATA"], f"{name}.csv").open(
        encoding="utf-8", newline=""
    ) as file:
        return list(csv.DictReader(file))


def open_shop() -> None:
    """Fill the shelves, and the book of addresses."""
    Stock.objects.bulk_create(
        Stock(product=row["product_id"], quantity=int(row["quantity"])) for row in rows("inventory")
    )
    emails = {row["id"]: row["email"] for row in rows("customers")}
    Address.objects.bulk_create(
        Address(
            key=row["id"],
            email=emails[row["customer_id"]],
            fields={ours: row[theirs] for theirs, ours in _ADDRESS.items()},
        )
        for row in rows("addresses")
    )


def addresses(email: str) -> list[dict[str, Any]]:
    """Return where a customer has had something sent."""
    return [
        {"id": each.key, **each.fields}
        for each in Address.objects.filter(email=email).order_by("key")
    ]


def remember(email: str, sent: Mapping[str, Any]) -> dict[str, Any]:
    """Return the address with an id: the one that it has in the customer's book, its own, or a new
    one.
    """
    fields = {name: value for name, value in sent.items() if name != "id"}
    known = (
        next((each for each in addresses(email) if each.items() >= fields.items()), None)
        if email
        else None
    )
    if known is not None:
        return known
    key = sent.get("id") or str(uuid4())
    if email and not Address.objects.filter(key=key).exists():
        Address.objects.create(key=key, email=email, fields=fields)
    return {**fields, "id": key}


def total(kind: str, amount: int) -> dict[str, Any]:
    return {"type": kind, "amount": amount}


def lines(wanted: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines of a checkout at the shop's own titles and prices."""
    products = {row["id"]: row for row in rows("products")}
    priced = []
    for line in wanted:
        product = products.get(line["item"]["id"])
        if product is None:
            raise Refused(400, f"Product {line['item']['id']} not found")
        if not Stock.objects.filter(product=product["id"], quantity__gte=line["quantity"]).exists():
            raise Refused(400, f"Insufficient stock for item {product['id']}")
        price = int(product["price"])
        amount = price * line["quantity"]
        priced.append(
            {
                "id": line.get("id") or str(uuid4()),
                "item": {"id": product["id"], "title": product["title"], "price": price},
                "quantity": line["quantity"],
                "totals": [total("subtotal", amount), total("total", amount)],
            }
        )
    return priced


def options(country: str, subtotal: int, products: Iterable[str]) -> list[dict[str, Any]]:
    """Return how something can be sent to a country, the cheapest first; its own rates go before
    those of all others.
    """
    products = set(products)
    free = any(
        (row["min_subtotal"] and subtotal >= int(row["min_subtotal"]))
        or products & set(json.loads(row["eligible_item_ids"] or "[]"))
        for row in rows("promotions")
    )
    rates = {}
    for row in sorted(rows("shipping_rates"), key=lambda row: row["country_code"] == country):
        if row["country_code"] in ("default", country):
            rates[row["service_level"]] = row
    offers = []
    for row in rates.values():
        without_cost = free and row["service_level"] == "standard"
        price = 0 if without_cost else int(row["price"])
        title = f"{row['title']} (Free)" if without_cost else row["title"]
        offers.append(
            {
                "id": row["id"],
                "title": title,
                "totals": [total("subtotal", price), total("total", price)],
            }
        )
    return sorted(offers, key=lambda offer: int(offer["totals"][0]["amount"]))


def discounts(codes: Iterable[str], amount: int) -> list[dict[str, Any]]:
    """Return the discounts of those codes that the shop knows, one after the other."""
    known = {row["code"]: row for row in rows("discounts")}
    applied = []
    for row in (known[code] for code in codes if code in known):
        value = int(row["value"])
        less = (
            amount - int(amount * (100 - value) / 100)
            if row["type"] == "percentage"
            else min(value, amount)
        )
        amount -= less
        applied.append({"code": row["code"], "title": row["description"], "amount": less})
    return applied
