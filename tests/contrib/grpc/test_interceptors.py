"""What can never work is refused at start; and what other interceptors see."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("grpc")

import grpc
from django.core.exceptions import ImproperlyConfigured
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.struct_pb2 import Struct

from django_idempotency import Policy
from django_idempotency.contrib.grpc import AsyncIdempotencyInterceptor, IdempotencyInterceptor
from django_idempotency.contrib.observe import OBSERVE
from django_idempotency.errors import ConfigurationError

from ...test_architecture import ROOT
from .shop import CHARGE, ECHO, REFUND, WATCH, Client, Loop, Serve, Shop, caller, serving

LEASE = Policy(guarantee="lease")


class Server:
    """A server that is only registered with, as generated code does."""

    def __init__(self) -> None:
        self.services: list[Any] = []
        self.names: list[str] = []

    def add_generic_rpc_handlers(self, services: Any) -> None:
        self.services.extend(services)

    def add_registered_method_handlers(self, name: str, handlers: Any) -> None:
        self.names.append(name)


def add_payments_to_server(interceptor: Any, *, is_async: bool = False) -> Server:
    server = Server()
    checked = interceptor.checked(server)
    checked.add_generic_rpc_handlers((Shop().service(is_async=is_async),))
    checked.add_registered_method_handlers("shop.Payments", {})
    return server


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: IdempotencyInterceptor({"shop.Payments/Charge": Policy()}, caller=None),
            "not a full name",
        ),
        (
            lambda: IdempotencyInterceptor(
                {CHARGE: Policy(scope=str, fingerprint="raw")}, caller=None
            ),
            "fingerprint, scope",
        ),
        (lambda: IdempotencyInterceptor({CHARGE: Policy(mode=OBSERVE)}, caller=None), "mode"),
        (
            lambda: AsyncIdempotencyInterceptor({CHARGE: Policy(guarantee="atomic")}, caller=None),
            "is async",
        ),
        (
            lambda: add_payments_to_server(
                IdempotencyInterceptor({f"{CHARGE}d": Policy()}, caller=None)
            ),
            "no such method",
        ),
        (
            lambda: IdempotencyInterceptor({CHARGE: None}, caller=None),  # type: ignore[dict-item]
            "has None in place of a policy",
        ),
        (
            lambda: add_payments_to_server(
                IdempotencyInterceptor({WATCH: Policy(required=True)}, caller=None)
            ),
            "streams",
        ),
        (
            lambda: add_payments_to_server(
                AsyncIdempotencyInterceptor({CHARGE: LEASE}, caller=None)
            ),
            "other kind",
        ),
        (
            lambda: add_payments_to_server(
                IdempotencyInterceptor({CHARGE: LEASE}, caller=None), is_async=True
            ),
            f"{CHARGE} is of the other kind",
        ),
    ],
)
def test_what_can_never_work(make: Callable[[], Any], says: str) -> None:
    """A policy, a name or a method that cannot be guarded is refused before the server starts."""
    with pytest.raises(ImproperlyConfigured, match=says):
        make()


def test_what_the_settings_contradict() -> None:
    """What can only be known with the settings is refused when a service is added, not by the first
    call.
    """
    # "atomic", as the settings say.
    interceptor = AsyncIdempotencyInterceptor({CHARGE: Policy()}, caller=None)
    with pytest.raises(ConfigurationError, match="is async"):
        add_payments_to_server(interceptor, is_async=True)


def test_whose_keys_they_are_must_be_said() -> None:
    """There is no default that two callers could share by accident."""
    with pytest.raises(TypeError, match="caller"):
        IdempotencyInterceptor({CHARGE: Policy()})  # type: ignore[call-arg]


class Unnamed(grpc.GenericRpcHandler):
    """Handlers of no service that has a name."""

    def service(self, handler_call_details: Any) -> Any:
        return None


def test_what_works() -> None:
    """A service is added to the server, and so is one of which nothing is guarded."""
    interceptor = IdempotencyInterceptor({WATCH: Policy()}, caller=None)
    server = add_payments_to_server(interceptor)
    interceptor.checked(server).add_generic_rpc_handlers([Unnamed()])
    assert (len(server.services), server.names) == (2, ["shop.Payments"])


# ------------------------------------------------------------------- what the server does not serve

#: A listed method of a service that nobody serves → what the error says.
UNSERVED = {
    "/shop.Paymentss/Charge": f"/shop.Paymentss/Charge is to be guarded, .* Did you mean {CHARGE}?",
    "/Shop.Payments/Charge": f"Did you mean {CHARGE}?",
    "/bank.Payouts/Pay": "an interceptor lists methods of its own server only",
}


@pytest.fixture
def generated() -> None:
    """Let protobuf know the service, as a generated module does. A pool forgets nothing."""
    file = FileDescriptorProto(
        name="shop.proto", package="shop", dependency=["google/protobuf/struct.proto"]
    )
    method = file.service.add(name="Payments").method.add(name="Charge")
    method.input_type = method.output_type = ".google.protobuf.Struct"
    descriptor_pool.Default().Add(file)


def guards_of(kind: str, *methods: str) -> Any:
    cls = IdempotencyInterceptor if kind == "sync" else AsyncIdempotencyInterceptor
    return cls(
        {CHARGE: LEASE, **dict.fromkeys(methods, Policy(guarantee="lease", required=True))},
        caller=caller,
    )


def start(kind: str, loop: Loop, interceptor: Any, *, by_checked: bool) -> None:
    """Start a server as its page says, by itself or as `checked()` returns it, and stop it."""

    async def of_either_kind() -> None:
        made: Any
        if kind == "sync":
            made = grpc.server(ThreadPoolExecutor(1), interceptors=[interceptor])
        else:
            made = grpc.aio.server(interceptors=[interceptor])
        checked = interceptor.checked(made)
        checked.add_generic_rpc_handlers((Shop().service(is_async=kind == "aio"),))
        assert interceptor.checked(made) is not made  # once for each service
        starting = (checked if by_checked else made).start()
        if kind == "aio":
            await starting
            await made.stop(None)
        else:
            made.stop(None)

    loop(of_either_kind())


@pytest.mark.parametrize("by_checked", [True, False])
@pytest.mark.parametrize("method", UNSERVED)
def test_a_typo_in_the_name_of_a_service(
    kind: str, loop: Loop, method: str, by_checked: bool
) -> None:
    """A server does not start with a listed method that it does not serve: nothing would be guarded
    by it.
    """
    with pytest.raises(ImproperlyConfigured, match=UNSERVED[method]):
        start(kind, loop, guards_of(kind, method), by_checked=by_checked)
    start(kind, loop, guards_of(kind), by_checked=by_checked)


def test_a_typo_in_the_name_of_a_method(generated: None) -> None:
    """What protobuf knows of the service is what may have been meant."""
    with pytest.raises(ImproperlyConfigured, match=f"no such method. Did you mean {CHARGE}?"):
        add_payments_to_server(guards_of("sync", f"{CHARGE}d"))


@pytest.mark.django_db(transaction=True)
@pytest.mark.either_server
@pytest.mark.parametrize("method", UNSERVED)
def test_a_server_that_was_not_checked(kind: str, serve: Serve, shop: Shop, method: str) -> None:
    """It serves nobody: its first call, of whatever method, finds that a listed one is not
    there.
    """
    client = serve(guards_of(kind, method))
    assert [client(method=called).code for called in (REFUND, CHARGE)] == [
        grpc.StatusCode.UNKNOWN
    ] * 2
    assert shop.runs == []
    assert serve(guards_of(kind))(method=REFUND).code is grpc.StatusCode.OK


# ----------------------------------------------------------------------- what stands in front of it


class Watching(grpc.ServerInterceptor):
    """Notes the messages of each call, and sets trailing metadata before it."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, Any]] = []

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = continuation(handler_call_details)

        def respond(request: Any, context: Any) -> Any:
            context.set_trailing_metadata((("trace", "17"),))
            response = handler.unary_unary(request, context)
            self.seen.append((request, response))
            return response

        return grpc.unary_unary_rpc_method_handler(
            respond, handler.request_deserializer, handler.response_serializer
        )


@pytest.mark.django_db(transaction=True)
@pytest.mark.either_server
def test_another_interceptor(generated: None) -> None:
    """In front of it a replay is a message, too; and both add to the trailing metadata."""
    watching, shop = Watching(), Shop()
    with serving(shop, (watching, IdempotencyInterceptor({CHARGE: LEASE}, caller=caller))) as port:
        client = Client(port)
        first, second = client(), client()
        client.channel.close()
    assert first.trailing == {"trace": "17"}
    assert second.trailing == {"trace": "17", "idempotent-replayed": "true"}
    (request, response), again = watching.seen
    assert isinstance(response, Struct)
    assert (request, response) == again


class Reading(grpc.ServerInterceptor):
    """Reads the requests itself, as one that decrypts them may."""

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = continuation(handler_call_details)

        def respond(request: Any, context: Any) -> Any:
            return handler.unary_unary(json.loads(request), context)

        return grpc.unary_unary_rpc_method_handler(respond, None, handler.response_serializer)


def test_an_interceptor_that_reads() -> None:
    """Where the bytes of a request are not seen, it cannot be compared: it is refused, not taken
    for a retry.
    """
    shop, policies = Shop(), {ECHO: LEASE}
    with serving(shop, (Reading(), IdempotencyInterceptor(policies, caller=caller))) as port:
        client = Client(port)
        replied = client(b"[5]", method=ECHO)
        client.channel.close()
    assert (replied.code, shop.runs) == (grpc.StatusCode.INTERNAL, [])


@pytest.mark.slow
def test_in_settings() -> None:
    """A module of settings may make one, before Django is set up: django-socio-grpc is given it
    there.
    """
    script = """
from django_idempotency import Policy
from django_idempotency.contrib.grpc import AsyncIdempotencyInterceptor
AsyncIdempotencyInterceptor({"/shop.Payments/Charge": Policy(guarantee="lease")}, caller=None)
import sys
print("django_idempotency.models" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=ROOT.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr) == ("False", "")
