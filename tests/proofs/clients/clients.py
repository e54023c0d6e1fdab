"""Each official client behind one interface: `pay()` calls its operation, and says what the API has
returned.

The clients are imported where they are used: in the environment of these tests only.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Where npm has put its packages.
NODE = Path(__file__).resolve().parents[3] / ".cache" / "clients"
HERE = Path(__file__).resolve().parent


class Refused(Exception):
    """The client's own error for a refusal: its class, and the status and code that it carries."""

    def __init__(self, name: str, status: Any, code: Any) -> None:
        super().__init__(name, status, code)


class Lost(Exception):
    """The client has no answer, and has given up."""


#: `pay(url, key, amount, retries)` → the id that the API has returned. Without a key (""), the
#: client makes one up. Raises `Refused` and `Lost`.
Pay = Callable[[str, str, int, int], str]


@dataclass(frozen=True, kw_only=True)
class Client:
    """An official client, and what its users get in each situation."""

    #: As its index names it.
    package: str
    index: str
    #: Of ours.
    profile: str
    pay: Pay
    #: The client's error for a key of another request, and for one whose request still runs.
    mismatch: tuple[str, int, str | None]
    running: tuple[str, int, str | None]
    #: Does it retry by itself: after a lost answer, and while the first request runs?
    after_loss: bool
    while_running: bool
    #: Does it make up a key of its own, if its user names none, and send it with each of its
    #: retries?
    own_key: bool = False
    #: Does it retry by itself after a failure of the server (503)?
    after_failure: bool = False


def stripe_python(url: str, key: str, amount: int, retries: int) -> str:
    import stripe

    client = stripe.StripeClient(
        "sk_test_1", base_addresses={"api": url}, max_network_retries=retries
    )
    try:
        made = client.v1.payment_intents.create(
            {"amount": amount, "currency": "eur"}, {"idempotency_key": key or None}
        )
    except stripe.APIConnectionError as error:
        raise Lost from error
    except stripe.StripeError as error:
        raise Refused(
            type(error).__name__, error.http_status, getattr(error.error, "code", None)
        ) from error
    return str(made.id)


def stripe_node(url: str, key: str, amount: int, retries: int) -> str:
    told = {
        "url": url,
        "key": key,
        "amount": amount,
        "retries": retries,
        "packages": str(NODE / "node_modules"),
    }
    done = subprocess.run(
        ["node", str(HERE / "stripe_node.cjs"), json.dumps(told)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    said: Mapping[str, Any] = json.loads(done.stdout)
    if said.get("error") == "StripeConnectionError":
        raise Lost(said)
    if "error" in said:
        raise Refused(said["error"], said["status"], said["code"])
    return str(said["id"])


def square(url: str, key: str, amount: int, retries: int) -> str:
    import httpx
    from square import Square
    from square.core.api_error import ApiError

    client = Square(token="t", base_url=url)
    try:
        made = client.payments.create(
            source_id="cnon:card-nonce-ok",
            idempotency_key=key,
            amount_money={"amount": amount, "currency": "EUR"},
            request_options={"max_retries": retries},
        )
    except httpx.TransportError as error:
        raise Lost from error
    except ApiError as error:
        raise Refused(type(error).__name__, error.status_code, error.errors[0].code) from error
    assert made.payment is not None
    return str(made.payment.id)


def adyen(url: str, key: str, amount: int, retries: int) -> str:
    import Adyen
    import requests

    client = Adyen.Adyen(xapikey="k", platform="test")
    client.checkout.payments_api.baseUrl = f"{url}/v72"
    payment = {
        "amount": {"currency": "EUR", "value": amount},
        "reference": "order 17",
        "merchantAccount": "m",
    }
    try:
        made = client.checkout.payments_api.payments(payment, idempotency_key=key)
    except requests.ConnectionError as error:
        raise Lost from error
    except Adyen.AdyenError as error:
        raise Refused(type(error).__name__, error.status_code, error.error_code) from error
    return str(made.message["pspReference"])


def paypal(url: str, key: str, amount: int, retries: int) -> str:
    import requests
    from paypalserversdk.configuration import Configuration
    from paypalserversdk.exceptions.error_exception import ErrorException
    from paypalserversdk.http.auth.o_auth_2 import ClientCredentialsAuthCredentials
    from paypalserversdk.models.amount_with_breakdown import AmountWithBreakdown
    from paypalserversdk.models.checkout_payment_intent import CheckoutPaymentIntent
    from paypalserversdk.models.order_request import OrderRequest
    from paypalserversdk.models.purchase_unit_request import PurchaseUnitRequest
    from paypalserversdk.paypal_serversdk_client import PaypalServersdkClient

    class Here(Configuration):
        def get_base_uri(self, server: Any = None) -> str:
            return url

    client = PaypalServersdkClient(
        config=Here(
            client_credentials_auth_credentials=ClientCredentialsAuthCredentials("id", "secret"),
            max_retries=retries,
            backoff_factor=0.1,
            retry_statuses=[409],
            retry_methods=["POST"],
        )
    )
    unit = PurchaseUnitRequest(amount=AmountWithBreakdown(currency_code="EUR", value=str(amount)))
    body = OrderRequest(intent=CheckoutPaymentIntent.CAPTURE, purchase_units=[unit])
    try:
        made = client.orders.create_order({"body": body, "paypal_request_id": key})
    except requests.ConnectionError as error:
        raise Lost from error
    except ErrorException as error:
        raise Refused(type(error).__name__, error.response_code, error.details[0].issue) from error
    return str(made.body.id)


def modern_treasury(url: str, key: str, amount: int, retries: int) -> str:
    import modern_treasury as module

    client = module.ModernTreasury(
        api_key="k", organization_id="o", base_url=url, max_retries=retries
    )
    try:
        made = client.payment_orders.create(
            amount=amount,
            direction="credit",
            originating_account_id="a",
            type="ach",
            idempotency_key=key or None,
        )
    except module.APIStatusError as error:
        raise Refused(
            type(error).__name__, error.status_code, error.response.json()["code"]
        ) from error
    except module.APIConnectionError as error:
        raise Lost from error
    return str(made.id)


def azure(url: str, key: str, amount: int, retries: int) -> str:
    from datetime import datetime, timezone
    from email.utils import format_datetime

    from azure.communication.email import EmailClient
    from azure.core.credentials import AzureKeyCredential
    from azure.core.exceptions import HttpResponseError, ServiceResponseError

    client = EmailClient(
        url, AzureKeyCredential("a2V5"), retry_total=retries, retry_backoff_factor=0.1
    )
    message = {
        "senderAddress": "shop@example.com",
        "content": {"subject": f"Receipt over {amount}", "plainText": "Thank you"},
        "recipients": {"to": [{"address": "asha@example.com"}]},
    }
    first_sent = format_datetime(datetime.now(timezone.utc), usegmt=True)
    headers = {"Repeatability-Request-ID": key, "Repeatability-First-Sent": first_sent}
    try:
        made = client.begin_send(
            message, headers=headers, retry_on_methods=["POST"], polling=False
        ).result()
    except ServiceResponseError as error:
        raise Lost from error
    except HttpResponseError as error:
        raise Refused(
            type(error).__name__, error.status_code, getattr(error.error, "code", None)
        ) from error
    return str(made["id"])


def gocardless(url: str, key: str, amount: int, retries: int) -> str:
    import requests
    from gocardless_pro import Client, errors

    payments = Client(access_token="t", base_url=url).payments
    payments.max_network_retries, payments.retry_delay_in_seconds = retries + 1, 0.1
    payment = {"amount": amount, "currency": "EUR", "links": {"mandate": "MD1"}}
    try:
        made = payments.create(payment, {"Idempotency-Key": key} if key else None)
    except requests.ConnectionError as error:
        raise Lost from error
    except errors.ApiError as error:
        raise Refused(type(error).__name__, error.code, error.errors[0]["reason"]) from error
    return str(made.id)


def mollie(url: str, key: str, amount: int, retries: int) -> str:
    from mollie.api.client import Client
    from mollie.api.error import RequestError, ResponseError

    client = Client(f"{url}/mollie", retry=retries)
    client.set_api_key("test_1")
    payment = {"amount": {"currency": "EUR", "value": f"{amount}.00"}, "description": "order 17"}
    try:
        made = client.payments.create(payment, idempotency_key=key)
    except RequestError as error:
        raise Lost from error
    except ResponseError as error:
        raise Refused(type(error).__name__, int(error.status or 0), error.field) from error
    return str(made.id)


def svix(url: str, key: str, amount: int, retries: int) -> str:
    import httpx
    from svix.api import MessageCreateOptions, MessageIn, Svix, SvixOptions
    from svix.api.errors.http_error import HttpError

    client = Svix("t", SvixOptions(server_url=url, retry_schedule=[0.1] * retries))
    message = MessageIn(event_type="invoice.paid", payload={"amount": amount})
    try:
        made = client.message.create(
            "app_1", message, MessageCreateOptions(idempotency_key=key or None)
        )
    except httpx.TransportError as error:
        raise Lost from error
    except HttpError as error:
        raise Refused(type(error).__name__, error.status_code, error.code) from error
    return str(made.id)


CLIENTS = (
    Client(
        package="stripe",
        index="PyPI",
        profile='"stripe"',
        pay=stripe_python,
        mismatch=("IdempotencyError", 400, "request_mismatch"),
        running=("APIError", 409, "idempotency_key_in_use"),
        after_loss=True,
        while_running=True,
        own_key=True,
    ),
    Client(
        package="stripe",
        index="npm",
        profile='"stripe"',
        pay=stripe_node,
        mismatch=("StripeIdempotencyError", 400, "request_mismatch"),
        running=("StripeAPIError", 409, "idempotency_key_in_use"),
        after_loss=True,
        while_running=True,
        own_key=True,
    ),
    Client(
        package="squareup",
        index="PyPI",
        profile="Square()",
        pay=square,
        mismatch=("ApiError", 400, "IDEMPOTENCY_KEY_REUSED"),
        running=("ApiError", 409, "CONFLICT"),
        after_loss=False,
        while_running=True,
        after_failure=True,
    ),
    Client(
        package="adyen",
        index="PyPI",
        profile="Adyen()",
        pay=adyen,
        mismatch=("AdyenAPIUnprocessableEntity", 422, "request_mismatch"),
        running=("AdyenAPIUnprocessableEntity", 422, "704"),
        after_loss=False,
        while_running=False,
    ),
    Client(
        package="paypal-server-sdk",
        index="PyPI",
        profile="PayPal()",
        pay=paypal,
        mismatch=("ErrorException", 422, "REQUEST_MISMATCH"),
        running=("ErrorException", 409, "PREVIOUS_REQUEST_IN_PROGRESS"),
        after_loss=True,
        while_running=True,
    ),
    Client(
        package="modern-treasury",
        index="PyPI",
        profile='"default"',
        pay=modern_treasury,
        mismatch=("UnprocessableEntityError", 422, "request-mismatch"),
        running=("ConflictError", 409, "in-progress"),
        after_loss=True,
        while_running=True,
        own_key=True,
        after_failure=True,
    ),
    Client(
        package="azure-communication-email",
        index="PyPI",
        profile="Repeatability()",
        pay=azure,
        mismatch=("HttpResponseError", 400, "RequestMismatch"),
        running=("ResourceExistsError", 409, "InProgress"),
        after_loss=True,
        while_running=True,
        after_failure=True,
    ),
    Client(
        package="gocardless-pro",
        index="PyPI",
        profile="GoCardless()",
        pay=gocardless,
        mismatch=("InvalidApiUsageError", 422, "request_mismatch"),
        running=("InvalidStateError", 409, "in_progress"),
        after_loss=True,
        while_running=False,
        own_key=True,
    ),
    Client(
        package="mollie-api-python",
        index="PyPI",
        profile="Mollie()",
        pay=mollie,
        mismatch=("UnprocessableEntityError", 422, None),
        running=("ConflictError", 409, None),
        after_loss=False,
        while_running=False,
    ),
    Client(
        package="svix",
        index="PyPI",
        profile='"default"',
        pay=svix,
        # Its client reads each 422 as one of FastAPI's, and fails at ours: the profile of its view
        # says 409.
        mismatch=("HttpError", 409, "request-mismatch"),
        running=("HttpError", 409, "in-progress"),
        after_loss=True,
        while_running=False,
        own_key=True,
        after_failure=True,
    ),
)
