"""A shop over gRPC: what its methods do, a server of either kind on a real port, and a client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any, NamedTuple

import grpc
from asgiref.sync import sync_to_async
from django.db import connections
from google.protobuf.struct_pb2 import Struct

from django_idempotency import current_operation, idempotent_function
from django_idempotency.errors import KeyMissing
from testproject.payments.models import Effect

SERVICE = "shop.Payments"
CHARGE, REFUND, WATCH, ECHO = (
    f"/{SERVICE}/{name}" for name in ("Charge", "Refund", "Watch", "Echo")
)
KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"
#: Seconds that a client waits, and a thread for another.
PATIENCE = 30


class NetworkDown(Exception):
    """What the shop raises of its own."""


@idempotent_function(key="order", validate="amount", guarantee="lease")
def book(order: str, amount: int) -> int:
    """Another guarded call, which the shop makes."""
    return amount


class Shop:
    """A request says by `do` how it ends."""

    def __init__(self) -> None:
        #: Of each run: its attempt (0: unguarded).
        self.runs: list[int] = []
        self.begun, self.released = Event(), Event()

    def _begin(self) -> None:
        operation = current_operation()
        self.runs.append(0 if operation is None else operation.attempt)
        if operation is not None:  # nothing closes the connections of a method that is not guarded
            Effect(label="charge").save()

    def _wait(self) -> None:
        self.begun.set()
        assert self.released.wait(PATIENCE)

    def _end(self, request: Any) -> Struct:
        match said(request):
            case "raise":
                raise NetworkDown("no route")
            case "inner":
                raise KeyMissing
            case "book":
                book("o-1", 1)
                book("o-1", 2)
        return struct(number=len(self.runs))

    def charge(self, request: Any, context: Any) -> Any:
        self._begin()
        match said(request):
            case "abort":
                context.set_trailing_metadata((("reason", "stolen"),))
                context.abort(grpc.StatusCode.NOT_FOUND, "no such card")
            case "status":
                context.set_code(grpc.StatusCode.NOT_FOUND)
                context.set_details("no such card")
            case "wait":
                self._wait()
        return self._end(request)

    async def acharge(self, request: Any, context: Any) -> Any:
        await sync_to_async(self._begin)()
        match said(request):
            case "abort":
                context.set_trailing_metadata((("reason", "stolen"),))
                await context.abort(grpc.StatusCode.NOT_FOUND, "no such card")
            case "status":
                context.set_code(grpc.StatusCode.NOT_FOUND)
                context.set_details("no such card")
            case "wait":
                await asyncio.get_running_loop().run_in_executor(None, self._wait)
        return await sync_to_async(self._end)(request)

    def watch(self, request: Any, context: Any) -> Iterator[Struct]:
        self.runs.append(0)
        yield struct(number=len(self.runs))

    async def awatch(self, request: Any, context: Any) -> Any:
        self.runs.append(0)
        yield struct(number=len(self.runs))

    def echo(self, request: list[int], context: Any) -> list[int]:
        self.runs.append(0)
        return [*request, len(self.runs)]

    async def aecho(self, request: list[int], context: Any) -> list[int]:
        return self.echo(request, context)

    def handlers(self, *, is_async: bool) -> dict[str, Any]:
        """Return its methods; `Echo` speaks JSON."""
        of = (
            (self.acharge, self.awatch, self.aecho)
            if is_async
            else (self.charge, self.watch, self.echo)
        )
        unary: Any = grpc.unary_unary_rpc_method_handler(
            of[0], Struct.FromString, Struct.SerializeToString
        )
        stream: Any = grpc.unary_stream_rpc_method_handler(
            of[1], Struct.FromString, Struct.SerializeToString
        )
        echo: Any = grpc.unary_unary_rpc_method_handler(of[2], json.loads, written)
        return {"Charge": unary, "Refund": unary, "Watch": stream, "Echo": echo}

    def service(self, *, is_async: bool) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(SERVICE, self.handlers(is_async=is_async))


def struct(**fields: Any) -> Struct:
    made = Struct()
    made.update(fields)
    return made


def written(message: Any) -> bytes:
    return json.dumps(message).encode()


def said(request: Any) -> str:
    return str(request["do"]) if "do" in request.fields else ""


def caller(context: Any) -> Any:
    """Return whose call it is: here, whatever it says."""
    return dict(context.invocation_metadata()).get("authorization")


# ------------------------------------------------------------------------------------------ servers


class Loop:
    """An event loop in a thread, for all servers of a module: grpc.aio serves one loop in a
    process.
    """

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = Thread(target=self.loop.run_forever)
        self._thread.start()

    def __call__(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(PATIENCE)

    def close(self) -> None:
        self(sync_to_async(connections.close_all)())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE)
        self.loop.close()


@contextmanager
def serving(shop: Shop, interceptors: Any) -> Iterator[int]:
    """Serve, and return the port."""
    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool, interceptors=interceptors)
        server.add_generic_rpc_handlers((shop.service(is_async=False),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield port
        server.stop(None).wait(PATIENCE)


@contextmanager
def aserving(run: Loop, shop: Shop, interceptors: Any) -> Iterator[int]:
    """See serving()."""

    async def start() -> tuple[Any, int]:
        server = grpc.aio.server(interceptors=interceptors)
        server.add_generic_rpc_handlers((shop.service(is_async=True),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        return server, port

    server, port = run(start())
    yield port
    run(server.stop(None))


# ------------------------------------------------------------------------------------------- client


class Reply(NamedTuple):
    """What a client gets."""

    code: grpc.StatusCode
    details: str
    trailing: dict[str, Any]
    value: Any = None

    @property
    def problem(self) -> tuple[grpc.StatusCode, str | None]:
        return self.code, self.trailing.get("idempotency-problem")


class Client:
    """Calls methods over one channel."""

    def __init__(self, port: int) -> None:
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")

    def __call__(
        self,
        request: Any = None,
        *,
        key: str | None = KEY,
        caller: str | None = "ada",
        method: str = CHARGE,
        timeout: float | None = PATIENCE,
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> Reply:
        named = (("x-idempotency-key", key), ("authorization", caller))
        sent = [(name, value) for name, value in named if value is not None]
        method_of: Any = self.channel.unary_unary(method, as_bytes, as_it_is)
        try:
            data, call = method_of.with_call(
                request or struct(amount=5), timeout, [*sent, *metadata]
            )
        except grpc.RpcError as failed:
            return reply(failed)
        return reply(call, read(method, data))

    def watch(self, **fields: Any) -> list[Any]:
        metadata = [("x-idempotency-key", KEY), ("authorization", "ada")]
        stream: Any = self.channel.unary_stream(WATCH, as_bytes, as_it_is)
        return [read(WATCH, data) for data in stream(struct(**fields), PATIENCE, metadata)]


def reply(call: Any, value: Any = None) -> Reply:
    return Reply(call.code(), call.details() or "", dict(call.trailing_metadata() or ()), value)


def as_bytes(request: Any) -> Any:
    return request if isinstance(request, bytes) else request.SerializeToString()


def as_it_is(data: bytes) -> bytes:
    return data


def read(method: str, data: bytes) -> Any:
    return json.loads(data) if method == ECHO else Struct.FromString(data)["number"]


#: Starts a server with interceptors, and returns its client.
Serve = Callable[..., Client]
