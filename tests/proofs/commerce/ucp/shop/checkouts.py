"""What becomes of a checkout: drafted, changed, completed, cancelled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from django.db.models import F

from .goods import Refused, addresses, discounts, lines, options, remember, total
from .models import Order, Stock

VERSION = "2026-01-11"
UCP = {
    "version": VERSION,
    "capabilities": [{"name": "dev.ucp.shopping.checkout", "version": VERSION}],
}


def new() -> dict[str, Any]:
    """Return an empty checkout."""
    return {"ucp": UCP, "id": str(uuid4()), "status": "incomplete", "links": [], "discounts": {}}


def change(checkout: dict[str, Any], sent: Any) -> None:
    """Change what was sent, and reckon anew. Raises `Refused`."""
    require_open(checkout)
    for name in ("currency", "buyer"):
        if name in sent:
            checkout[name] = sent[name]
    payment = sent.get("payment", {})
    checkout["payment"] = {
        "handlers": [],
        "instruments": payment.get("instruments") or [],
        "selected_instrument_id": payment.get("selected_instrument_id"),
    }
    checkout["line_items"] = lines(sent.get("line_items") or checkout["line_items"])
    subtotal = sum(line["totals"][-1]["amount"] for line in checkout["line_items"])
    if "discounts" in sent:
        checkout["discounts"] = {"codes": sent["discounts"].get("codes") or []}
    applied = discounts(checkout["discounts"].get("codes", ()), subtotal)
    checkout["discounts"]["applied"] = applied
    if "fulfillment" in sent or "fulfillment" in checkout:
        known = checkout.get("fulfillment", {}).get("methods", [])
        wanted = sent.get("fulfillment", {}).get("methods") or known
        checkout["fulfillment"] = {
            "methods": [
                _method(checkout, method, known[place] if place < len(known) else {}, subtotal)
                for place, method in enumerate(wanted)
            ]
        }
    shipping = [option["totals"][-1]["amount"] for _, option in selected(checkout)]
    checkout["totals"] = [
        total("subtotal", subtotal),
        *(total("discount", each["amount"]) for each in applied),
        *(total("fulfillment", amount) for amount in shipping),
        total("total", subtotal - sum(each["amount"] for each in applied) + sum(shipping)),
    ]
    checkout["status"] = "ready_for_complete" if shipping else "incomplete"


def _method(
    checkout: Mapping[str, Any], sent: Mapping[str, Any], known: Mapping[str, Any], subtotal: int
) -> dict[str, Any]:
    email = (checkout.get("buyer") or {}).get("email", "")
    ids = [line["id"] for line in checkout["line_items"]]
    destinations = (
        [remember(email, each) for each in sent.get("destinations") or ()]
        or known.get("destinations")
        or addresses(email)
    )
    chosen = sent.get("selected_destination_id") or known.get("selected_destination_id")
    destination = next((each for each in destinations if each["id"] == chosen), None)
    method = {
        "id": known.get("id") or str(uuid4()),
        "type": sent.get("type", "shipping"),
        "line_item_ids": ids,
    }
    if destinations:
        method["destinations"] = destinations
    if destination is not None:
        products = [line["item"]["id"] for line in checkout["line_items"]]
        offers = options(destination["address_country"], subtotal, products)
        method["selected_destination_id"] = chosen
        method["groups"] = [
            {
                **group,
                "id": group.get("id") or str(uuid4()),
                "line_item_ids": ids,
                "options": offers,
            }
            for group in sent.get("groups") or known.get("groups") or [{}]
        ]
    return method


def selected(checkout: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Return each option that is selected, with the method that it is of."""
    return [
        (method, option)
        for method in checkout.get("fulfillment", {}).get("methods", ())
        for group in method.get("groups", ())
        for option in group["options"]
        if option["id"] == group.get("selected_option_id")
    ]


def require_open(checkout: Mapping[str, Any]) -> None:
    if checkout["status"] in ("completed", "canceled"):
        raise Refused(409, f"The checkout is {checkout['status']}")


def cancel(checkout: dict[str, Any]) -> None:
    """Cancel it. Raises `Refused`."""
    require_open(checkout)
    checkout["status"] = "canceled"


def complete(checkout: dict[str, Any], sent: Any, base: str) -> None:
    """Take the money, the goods and the order. Raises `Refused`."""
    require_open(checkout)
    if not selected(checkout):
        raise Refused(400, "Fulfillment address and option must be selected before completion.")
    credential = sent["payment_data"]["credential"]
    if "number" not in credential and credential.get("token") != "success_token":
        raise Refused(402, "The card was declined")
    for line in checkout["line_items"]:
        shelf = Stock.objects.filter(product=line["item"]["id"], quantity__gte=line["quantity"])
        if not shelf.update(quantity=F("quantity") - line["quantity"]):
            raise Refused(409, f"Item {line['item']['id']} is out of stock")
    order = {"id": str(uuid4())}
    order["permalink_url"] = f"{base}/orders/{order['id']}"
    checkout.update(status="completed", order=order)
    Order.objects.create(id=order["id"], body=_order(checkout))


def _order(checkout: Mapping[str, Any]) -> dict[str, Any]:
    items = [{"id": line["id"], "quantity": line["quantity"]} for line in checkout["line_items"]]
    return {
        "ucp": UCP,
        **checkout["order"],
        "checkout_id": checkout["id"],
        "line_items": [
            {
                **line,
                "quantity": {"total": line["quantity"], "fulfilled": 0},
                "status": "processing",
            }
            for line in checkout["line_items"]
        ],
        "fulfillment": {
            "expectations": [
                {
                    "id": str(uuid4()),
                    "line_items": items,
                    "method_type": method["type"],
                    "destination": next(
                        each
                        for each in method["destinations"]
                        if each["id"] == method["selected_destination_id"]
                    ),
                    "description": option["title"],
                }
                for method, option in selected(checkout)
            ],
            "events": [],
        },
        "totals": checkout["totals"],
    }
