"""Signed webhooks as Standard Webhooks says, over standardwebhooks and httpx: `pip install
"./django-idempotency[webhooks]"`.

`webhook-id` is the message's id, and the same for each attempt. For several receivers send a
message to each, under a key of its own: then one that is away makes no other wait.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import httpx
from django.core.exceptions import ImproperlyConfigured
from django.core.serializers.json import DjangoJSONEncoder
from standardwebhooks import Webhook

from ....errors import BrokerUnavailable
from .bodies import JSON, Bodies

if TYPE_CHECKING:
    from ..models import Message

#: Headers that say how a request travels, and where to. They are the client's: taken from a
#: message, `Host` would lead to another receiver, and `Transfer-Encoding` beside the length of the
#: body lets a proxy and a server read two requests.
TRAVELS = frozenset(
    {
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "upgrade",
        "expect",
    }
)
#: The receiver is overloaded, or a proxy does not reach it.
AWAY = frozenset({429, 502, 503, 504})


class Refused(Exception):
    """A receiver has not taken a message."""


class Gone(Refused):
    """The receiver has answered 410: it wants no message any more. Override `gone()` to give its
    messages up.
    """


class WebhookPublisher(Bodies):
    """Posts a message to a receiver, and returns when that has answered 2xx. It follows no
    redirect.
    """

    url: str = ""
    #: Sign with each, so that a receiver can change its own: "whsec_…".
    secrets: Sequence[str] = ()
    #: `False` if `receiver()` chooses by the message: one that is away then concerns its own
    #: messages only.
    single: bool = True
    timeout: float = 15.0

    def __init__(self) -> None:
        self._http = self.client()

    def client(self) -> httpx.Client:
        return httpx.Client(timeout=self.timeout)

    def receiver(self, message: Message) -> tuple[str, Sequence[str]]:
        """Return the address for a message, and the secrets to sign it with."""
        return self.url, self.secrets

    def body(self, message: Message) -> tuple[str, str]:
        """Return a CloudEvent if there is a `source`, else what Standard Webhooks recommends."""
        if self.source:
            return super().body(message)
        event = {"type": message.topic, "timestamp": message.created_at, "data": message.payload}
        return json.dumps(event, cls=DjangoJSONEncoder), JSON

    def publish(self, message: Message) -> None:
        url, secrets = self.receiver(message)
        body, media_type = self.body(message)
        given = self.headers(message)
        # Whose names have no case: ours replace the message's.
        headers = httpx.Headers({name: given[name] for name in given if not travels(name)})
        headers.update(
            {"content-type": media_type, **signed(str(message.message_id), body, secrets)}
        )
        try:
            with self._http.stream("POST", url, content=body.encode(), headers=headers) as response:
                status = response.status_code  # nothing is read of a body, which may be endless
        except (httpx.LocalProtocolError, httpx.UnsupportedProtocol):
            raise  # its own header or address
        except httpx.TransportError as error:
            raise self._away(f"{type(error).__name__}: {error}") from error
        if status in AWAY:
            raise self._away(f"The receiver has answered {status}.")
        if status == 410:
            self.gone(message)
        elif not 200 <= status < 300:
            raise Refused(f"The receiver has answered {status}.")

    def gone(self, message: Message) -> None:
        """Raise, and the message waits; return, and it is given up."""
        raise Gone("The receiver has answered 410.")

    def close(self) -> None:
        self._http.close()

    def _away(self, said: str) -> Exception:
        return (BrokerUnavailable if self.single else Refused)(said)


def travels(name: str) -> bool:
    """Is a header about the journey of a request? Servers behind WSGI cannot tell `_` from `-`."""
    return name.strip().lower().replace("_", "-") in TRAVELS


def signed(message_id: str, body: str, secrets: Sequence[str]) -> dict[str, str]:
    """Return the headers that say who has sent a body, and when."""
    if not secrets or isinstance(secrets, str):
        raise ImproperlyConfigured(
            'Webhooks are signed. Type secrets = ("whsec_…",) in the publisher: a tuple.'
        )
    now = datetime.now(timezone.utc)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": " ".join(
            Webhook(secret).sign(message_id, now, body) for secret in secrets
        ),
    }
