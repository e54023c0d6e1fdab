"""What guards a method in either kind of server: its policy as a guarded function, its key, and its
messages as bytes.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from inspect import iscoroutinefunction
from types import SimpleNamespace
from typing import Any, ClassVar

import grpc
from django.core.exceptions import ImproperlyConfigured

from ... import OnTakeover, Policy, conf
from ...core.policy import MIN_SHARED_KEY
from ...errors import (
    ConfigurationError,
    DeadlinePassed,
    IdempotencyError,
    KeyMalformed,
    KeyTooShort,
    ScopeRequired,
)
from ...functions.call import plan_of
from ...functions.decorator import OF_POLICY, idempotent_function
from ...functions.names import validate_key
from ...functions.running import Answer
from .statuses import REPLAYED, add_trailing

#: The metadata that may hold the key.
KEYS = ("x-idempotency-key", "idempotency-key")
_METHOD = re.compile(r"/[\w.]+/\w+")

Methods = Mapping[str, Policy] | Callable[[str], Policy | None]
Caller = Callable[[Any], str | Awaitable[str | None] | None]


class Guards:
    """The guarded methods: policies by full name, or a function from a full name to a policy, or to
    `None`.

    `caller(context)` names whose a key is, and must have authenticated them: a replay asks nothing
    else. It may abort; for `None` the call is refused. Without it (`caller=None`) all callers share
    their keys, of 20 characters or more. Raises `ImproperlyConfigured` for what can never work.
    """

    is_async: ClassVar[bool]

    def __init__(self, methods: Methods, *, caller: Caller | None) -> None:
        self._caller = caller
        #: Those that are known from the start.
        self._listed = methods if isinstance(methods, Mapping) else {}
        #: Those of them that no server is known to serve yet.
        self._unserved = set(self._listed)
        #: The full names of methods that a server serves, as far as they are known.
        self._known: set[str] = set()
        #: The servers whose start asks for unserved methods.
        self._starting: set[int] = set()
        self._policy_of = methods.get if isinstance(methods, Mapping) else methods
        self._functions: dict[str, Any] = {}
        for method in self._listed:
            if not _METHOD.fullmatch(method):
                raise ImproperlyConfigured(
                    f'{method!r} is not a full name of a method, such as "/shop.Payments/Charge".'
                )
            if not isinstance(self._listed[method], Policy):
                raise ImproperlyConfigured(
                    f"{method} has {self._listed[method]!r} in place of a policy, which "
                    "guards nothing. Type "
                    "Policy(required=True), or leave it out."
                )
            self._function_of(method)

    def checked(self, server: Any) -> Any:
        """Return the server for `add_…Servicer_to_server`, which then raises at start what is wrong
        with a listed method.

        `ImproperlyConfigured`: its service does not have it, or it streams although a key is
        required, or it is of the other kind; and when the server starts, also by its own `start()`:
        no service of the server is its own. `ConfigurationError`: its policy contradicts the
        settings.
        """
        if id(server) not in self._starting and hasattr(server, "start"):
            self._starting.add(id(server))
            server.start = _starting(server.start, self)
        return _Checked(server, self)

    def check(self, service: Any) -> None:
        """Raise what `checked()` says of the methods of a service that a server gets."""
        for method in self._listed:
            handler = service.service(SimpleNamespace(method=method, invocation_metadata=()))
            if isinstance(service, grpc.ServiceRpcHandler):
                self._learn(service, method)
                if handler is None and method.startswith(f"/{service.service_name()}/"):
                    raise ImproperlyConfigured(
                        f"{method} is to be guarded, but its service has no such "
                        f"method.{self._meant(method)}"
                    )
            if handler is not None:
                self._unserved = self._unserved - {method}
            function = self.guard_of(method, handler)
            if function is not None:
                plan_of(function.idempotency._terms)  # noqa: SLF001 - ours

    def _learn(self, service: grpc.ServiceRpcHandler, method: str) -> None:
        """Note the methods of a service that a listed one may have meant: as protobuf knows it, and
        the one of that name.
        """
        of = f"/{service.service_name()}"
        self._known.update(f"{of}/{name}" for name in methods_of(service.service_name()))
        name = f"{of}/{method.rpartition('/')[2]}"
        if service.service(SimpleNamespace(method=name, invocation_metadata=())) is not None:
            self._known.add(name)

    def know(self, methods: Iterable[str]) -> None:
        """Note the full names of methods that a server serves."""
        self._known.update(methods)

    def require_served(self) -> None:
        """Raise `ImproperlyConfigured` for a listed method that no service of the server has."""
        for method in sorted(self._unserved):
            raise ImproperlyConfigured(
                f"{method} is to be guarded, but the server has no such method, so nothing "
                "is guarded by it."
                f"{self._meant(method)} Or leave it out: an interceptor lists methods of "
                "its own server only."
            )

    def ask(self, found: Mapping[str, Any]) -> None:
        """Raise `ImproperlyConfigured` at the first call of a server that was not checked, if it
        lacks a listed method.

        `found`: method → its handler, or `None`, of those that `unserved` names.
        """
        self._unserved = {method for method in self._unserved if found.get(method) is None}
        self.require_served()

    @property
    def unserved(self) -> tuple[str, ...]:
        """The listed methods that no server is known to serve yet."""
        return tuple(sorted(self._unserved))

    def _meant(self, method: str) -> str:
        near = get_close_matches(method, self._known, n=1, cutoff=0.6)
        return f" Did you mean {near[0]}?" if near else ""

    def guard_of(self, method: str, handler: Any) -> Any:
        """Return the guarded function of a method; `None`: it is not guarded.

        Raises `ImproperlyConfigured`.
        """
        if handler is None or (function := self._function_of(method)) is None:
            return None
        if handler.request_streaming or handler.response_streaming:
            if conf.resolve(self._policy_of(method) or Policy()).required is True:
                raise ImproperlyConfigured(
                    f"{method} streams, so no key can guard it: leave it out."
                )
            return None
        if iscoroutinefunction(handler.unary_unary) is not self.is_async:
            raise ImproperlyConfigured(
                f"{method} is of the other kind: guard coroutine functions by the async class."
            )
        return function

    def _function_of(self, method: str) -> Any:
        if method not in self._functions and (policy := self._policy_of(method)) is not None:
            self._functions[method] = guarded(
                method, policy, is_async=self.is_async, shared=self._caller is None
            )
        return self._functions.get(method)

    def named(self, key: str | None, context: Any) -> Any:
        """Return whom `caller` names, perhaps to be awaited. Without a key it is not asked."""
        return None if key is None or self._caller is None else self._caller(context)

    def owner(self, key: str | None, named: Any) -> str | None:
        """Return whose a key is; `None`: nobody's.

        Raises `ScopeRequired`, `KeyTooShort`, `ConfigurationError`.
        """
        if not isinstance(named, str | None):
            raise ConfigurationError(
                f"caller must return text or None, not {type(named).__name__}."
            )
        if key is not None and self._caller is None and len(key) < MIN_SHARED_KEY:
            raise KeyTooShort
        if key is not None and self._caller is not None and not named:
            raise ScopeRequired
        return named


class _Checked:
    def __init__(self, server: Any, guards: Guards) -> None:
        self._server = server
        self._guards = guards

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    def add_generic_rpc_handlers(self, services: Iterable[grpc.GenericRpcHandler]) -> None:
        for service in (services := tuple(services)):
            self._guards.check(service)
        self._server.add_generic_rpc_handlers(services)

    def add_registered_method_handlers(
        self, service_name: str, method_handlers: Mapping[str, Any]
    ) -> None:
        self._guards.know(f"/{service_name}/{name}" for name in method_handlers)
        self._server.add_registered_method_handlers(service_name, method_handlers)


def _starting(start: Callable[[], Any], guards: Guards) -> Callable[[], Any]:
    """Return what starts a server, or a coroutine that does, once each listed method is known to be
    served.
    """

    def checked_start() -> Any:
        guards.require_served()
        return start()

    return checked_start


def guarded(method: str, policy: Policy, *, is_async: bool, shared: bool) -> Any:
    """Return what does a method's `work` under a key, as a guarded function.

    Its result is the response as bytes.
    """
    given = dict(policy.given())
    if strange := sorted(given.keys() - OF_POLICY - {"ttl"}):
        raise ImproperlyConfigured(
            f"{method}: a method takes no {', '.join(strange)}. Leave it out of the policy."
        )
    given["extensions"] = [
        each for each in given.get("extensions", ()) if not isinstance(each, OnTakeover)
    ]
    given["on_takeover"] = policy.set_by_extension("on_takeover")
    if "ttl" in given:
        given["expires_after"] = given.pop("ttl")

    # The first three arguments identify the call.
    def run(
        caller: Any,  # noqa: ARG001
        key: Any,  # noqa: ARG001
        request: bytes,  # noqa: ARG001
        work: Callable[[], bytes],
    ) -> bytes:
        return work()

    async def arun(
        caller: Any,  # noqa: ARG001
        key: Any,  # noqa: ARG001
        request: bytes,  # noqa: ARG001
        work: Callable[[], Awaitable[bytes]],
    ) -> bytes:
        return await work()

    key = "key" if shared else "[caller, key]"
    decorate: Any = idempotent_function(
        key_prefix=f"grpc:{method}", key=key, validate="request", **given
    )
    return decorate(arun if is_async else run)


# ----------------------------------------------------------------------------------------- one call


class Aborted(IdempotencyError):
    """The method ended with another status than OK, so nothing is stored."""

    delivery = "failed"


class Stored(bytes):
    """A stored response whose class is not known: it is sent as it is."""

    __slots__ = ()


class Messages:
    """The messages of one call."""

    #: What the method has returned, once it has run here.
    response: Any = None
    _ran = False
    _received: bytes | None = None

    def __init__(self, method: str, handler: Any) -> None:
        self._method = method
        self._handler = handler

    def receive(self, data: bytes) -> Any:
        """Return the request in some bytes."""
        self._received = data
        read = self._handler.request_deserializer
        return data if read is None else read(data)

    def send(self, response: Any) -> bytes:
        """Return the bytes of a response."""
        self._ran = True
        write = self._handler.response_serializer
        return bytes(response) if write is None or isinstance(response, Stored) else write(response)

    def compared(self, request: Any) -> bytes:
        """Return what a retry shares with the request: the bytes, of a message of protobuf's in
        their deterministic form.
        """
        # What else serializes to text has no such form.
        write = getattr(request, "SerializePartialToString", None)
        found = self._received if write is None else write(deterministic=True)
        if found is None:
            raise ConfigurationError(
                "An interceptor reads the requests itself: put it behind this one."
            )
        return found

    def answered(self, answer: Answer, context: Any) -> Any:
        """Return the response; if it was made elsewhere, as a message, if protobuf knows the
        class.
        """
        if self._ran:
            return self.response
        if answer.replayed:
            add_trailing(context, REPLAYED)
        message = response_class(self._method)
        return Stored(answer.result) if message is None else message.FromString(answer.result)

    def aborted(self, by: Aborted) -> Any:
        """Return the response with which a method failed, or raise what it raised."""
        if by.__cause__ is not None:
            raise by.__cause__
        return self.response


def key_of(context: Any) -> str | None:
    """Return the key of a call; `None`: it has none. Raises `KeyMalformed`."""
    found = {value for name, value in context.invocation_metadata() or () if name in KEYS}
    if len(found) > 1:
        raise KeyMalformed
    return validate_key(found.pop()) if found else None


def require_time(context: Any) -> None:
    """Raise `DeadlinePassed` for a call whose client has stopped waiting: nothing begins for it.

    What has begun runs on.
    """
    left = context.time_remaining()
    if left is not None and left <= 0:
        raise DeadlinePassed


@contextmanager
def failing(context: Any) -> Iterator[None]:
    """Raise `Aborted` where a method aborts, or what it calls was refused: neither is an answer of
    this call.
    """
    error: Exception | None = None
    try:
        yield
    except Exception as raised:
        # abort() raises a bare Exception; that of aio has a class.
        if type(raised) is not Exception and not isinstance(
            raised, (grpc.aio.AbortError, IdempotencyError)
        ):
            raise
        error = raised
    if error is not None or context.code() not in (None, 0, grpc.StatusCode.OK):
        raise Aborted from error


def response_class(method: str) -> Any:
    """Return the class of a method's responses, if protobuf knows its service."""
    service, _, name = method[1:].rpartition("/")
    with suppress(ImportError, KeyError):
        from google.protobuf import message_factory

        return message_factory.GetMessageClass(methods_of(service)[name].output_type)
    return None


def methods_of(service: str) -> Mapping[str, Any]:
    """Return the methods of a service by their names, if protobuf knows it."""
    with suppress(ImportError, KeyError):
        from google.protobuf import descriptor_pool

        return dict(descriptor_pool.Default().FindServiceByName(service).methods_by_name)
    return {}
