"""Whatever shape a view has, wherever our entry point is: it is guarded, or refused in words before
it runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar

import pytest
from adrf.decorators import api_view as async_api_view
from adrf.views import APIView as AsyncAPIView
from adrf.viewsets import ViewSet as AsyncViewSet
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib import admin
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from pytest_django import Settings
from rest_framework.decorators import action, api_view
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from django_idempotency import Policy, idempotent
from django_idempotency.errors import ConfigurationError
from django_idempotency.http.exchange import HEADER
from django_idempotency.rest_framework import IdempotentViewMixin

from .conftest import effects
from .outcome_views import write

pytestmark = [pytest.mark.any_database, pytest.mark.django_db(transaction=True)]

LEASE: Any = {"guarantee": "lease"}


def pay(request: Any) -> HttpResponse:
    write()
    return HttpResponse(status=201)


async def apay(request: Any) -> HttpResponse:
    await sync_to_async(write)()
    return HttpResponse(status=201)


def rest(request: Any) -> Response:
    write()
    return Response({}, status=201)


async def arest(request: Any) -> Response:
    await sync_to_async(write)()
    return Response({}, status=201)


class Slotted:
    __slots__ = ()

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return pay(request)


class Callable_(Slotted):  # noqa: N801 - without slots it has a __dict__
    pass


class AsyncCallable:
    async def __call__(self, request: HttpRequest) -> HttpResponse:
        return await apay(request)


class Site:
    """As an admin site: its views are bound methods."""

    def pay(self, request: HttpRequest) -> HttpResponse:
        return pay(request)

    async def apay(self, request: HttpRequest) -> HttpResponse:
        return await apay(request)

    @staticmethod
    def static(request: HttpRequest) -> HttpResponse:
        return pay(request)


class InDispatch(View):
    """GraphQLView of graphene and of strawberry: no post()."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return pay(request)


class Frozen(View):
    """As a controller of django-modern-rest: it has found its handlers before a decorator replaces
    them.
    """

    endpoints: ClassVar[dict[str, Any]]

    def __init_subclass__(cls) -> None:
        cls.endpoints = {"POST": vars(cls).get("post")}

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return type(self).endpoints[str(request.method)](self, request)


class FrozenView(View):
    """The same in its as_view()."""

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Any:
        return lambda request: post(cls(), request)


class Sometimes(View):
    """It leads to its handlers, except where it does not."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        if "passes" in request.GET:
            return apay(request) if self.view_is_async else pay(request)
        if "refuses" in request.GET:
            return self.refused() if self.view_is_async else HttpResponse(status=403)
        return super().dispatch(request, *args, **kwargs)

    async def refused(self) -> HttpResponse:
        return HttpResponse(status=403)


class Inside(View):
    """It calls its super() in a method of its own, like those of allauth."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return self.handle(request, *args, **kwargs)

    def handle(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        def run() -> Any:
            return super(Inside, self).dispatch(request, *args, **kwargs)

        return run()


class ByHand(View):
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return self.post(request)  # type: ignore[attr-defined]


def made(*bases: type[Any], **members: Any) -> Any:
    """Make a class, as a class statement would: decorating a class changes it."""
    return type("Made", bases, members)


def calls(view: Any) -> Any:
    """Return a function that calls a view."""

    def calling(request: HttpRequest) -> Any:
        return view(request)

    return calling


def post(self: Any, request: Any) -> HttpResponse:
    return pay(request)


async def apost(self: Any, request: Any) -> HttpResponse:
    return await apay(request)


def rest_post(self: Any, request: Any) -> Response:
    return rest(request)


async def arest_post(self: Any, request: Any) -> Response:
    return await arest(request)


def on_method(
    decorate: Callable[[Any], Any], base: type[Any] = View, handler: Any = post, name: str = "post"
) -> Any:
    """Decorate a handler in the body of its class."""

    def renamed(self: Any, request: Any) -> Any:
        return handler(self, request)

    renamed.__qualname__ = f"Made.{name}"
    return type("Made", (base,), {name: decorate(renamed), "permission_classes": ()})


def mixed(base: type[Any], handler: Any, **policy: Any) -> Any:
    members = {"permission_classes": (), "post": handler, "create": handler}
    return made(IdempotentViewMixin, base, idempotency=Policy(**policy), **members)


GUARDED = None
#: It is guarded, and may hide a check that cannot be repeated before a replay.
NOT_REPLAYED = "not replayed"

#: Shape and entry point → the callback, or what raises, and the sentence that refuses it (`None`:
#: it is guarded).
SHAPES: dict[str, tuple[Callable[[], Any], str | None]] = {
    # ---- the decorator on what is called
    "function": (lambda: idempotent()(pay), GUARDED),
    "function, no parentheses": (lambda: idempotent(pay), GUARDED),
    "async function": (lambda: idempotent(**LEASE)(apay), GUARDED),
    "function around a coroutine": (
        lambda: idempotent(**LEASE)(calls(apay)),
        "returned a coroutine",
    ),
    "partial": (lambda: idempotent()(functools.partial(pay)), GUARDED),
    "async partial": (lambda: idempotent(**LEASE)(functools.partial(apay)), GUARDED),
    "instance": (lambda: idempotent()(Callable_()), GUARDED),
    "instance with slots": (lambda: idempotent()(Slotted()), GUARDED),
    "async instance": (lambda: idempotent(**LEASE)(AsyncCallable()), GUARDED),
    "async instance, atomic": (
        lambda: idempotent()(AsyncCallable()),
        "no transaction can cover it",
    ),
    "bound method": (lambda: idempotent()(Site().pay), GUARDED),
    "async bound method": (lambda: idempotent(**LEASE)(Site().apay), GUARDED),
    "bound method in admin_view": (
        lambda: admin.site.admin_view(idempotent()(Site().pay)),
        GUARDED,
    ),
    "static method": (lambda: idempotent()(Site.static), "hides it from its class"),
    "no response": (lambda: idempotent()(lambda request: (request, 201)), "not a response"),
    "nothing": (lambda: idempotent()(lambda request: None), "not a response"),
    # ---- the decorator on classes
    "class": (lambda: idempotent()(made(View, post=post)).as_view(), GUARDED),
    "class, no parentheses": (lambda: idempotent(made(View, post=post)).as_view(), GUARDED),
    "async class": (lambda: idempotent(**LEASE)(made(View, post=apost)).as_view(), GUARDED),
    "async class, atomic": (
        lambda: idempotent()(made(View, post=apost)),
        "no transaction can cover it",
    ),
    "class that answers in dispatch": (
        lambda: idempotent()(made(InDispatch)),
        r"responds in dispatch\(\)",
    ),
    "subclass that answers in dispatch": (
        lambda: made(idempotent()(made(View)), dispatch=InDispatch.dispatch),
        r"responds in dispatch\(\)",
    ),
    "class with frozen handlers": (
        lambda: idempotent()(made(Frozen, post=post)),
        r"no super\(\).dispatch\(\)",
    ),
    "async class with frozen handlers": (
        lambda: idempotent(**LEASE)(made(Frozen, post=apost)),
        r"responds in dispatch\(\)",
    ),
    "subclass with frozen handlers": (
        lambda: made(idempotent()(made(View)), post=post, dispatch=Frozen.dispatch),
        r"responds in dispatch\(\)",
    ),
    "method with frozen handlers": (
        lambda: on_method(idempotent(), Frozen).as_view(),
        r"responds in dispatch\(\)",
    ),
    "class with a frozen view": (
        lambda: idempotent()(made(FrozenView, post=post)),
        r"no super\(\).as_view\(\)",
    ),
    "dispatch with a function": (lambda: idempotent()(made(Inside, post=post)).as_view(), GUARDED),
    "dispatch that calls its handler": (
        lambda: idempotent()(made(ByHand, post=post)).as_view(),
        GUARDED,
    ),
    "dispatch that calls its super": (
        lambda: idempotent()(made(Sometimes, post=post)).as_view(),
        GUARDED,
    ),
    "async dispatch that calls its super": (
        lambda: idempotent(**LEASE)(made(Sometimes, post=apost)).as_view(),
        GUARDED,
    ),
    "handler that takes no request": (
        lambda: idempotent()(made(View, post=lambda self: 1)),
        "takes no request",
    ),
    "as_view": (lambda: idempotent()(InDispatch.as_view()), "on the class"),
    "function around as_view": (lambda: idempotent()(calls(InDispatch.as_view())), GUARDED),
    "class of DRF": (
        lambda: idempotent()(made(APIView, post=rest_post, permission_classes=())).as_view(),
        GUARDED,
    ),
    "async class of adrf": (
        lambda: idempotent(**LEASE)(
            made(AsyncAPIView, post=arest_post, permission_classes=())
        ).as_view(),
        GUARDED,
    ),
    "async class of DRF": (
        lambda: idempotent(**LEASE)(made(APIView, post=arest_post)),
        "does not await",
    ),
    # ---- the decorator on methods
    "method": (lambda: on_method(idempotent()).as_view(), GUARDED),
    "method, no parentheses": (lambda: on_method(idempotent).as_view(), GUARDED),
    "method below a method_decorator": (
        lambda: on_method(
            lambda method: method_decorator(login_required)(idempotent()(method))
        ).as_view(),
        "hides it from its class",
    ),
    "method above a method_decorator": (
        lambda: on_method(
            lambda method: idempotent()(method_decorator(login_required)(method))
        ).as_view(),
        "hides it|Swap the two lines",
    ),
    "method that is no handler": (
        lambda: on_method(idempotent(), name="pay").pay,
        "it is not one of the handlers",
    ),
    "method of DRF": (
        lambda: on_method(idempotent(), APIView, rest_post).as_view(),
        "IdempotentViewMixin",
    ),
    "action above": (
        lambda: on_method(
            lambda method: action(detail=False, methods=["post"])(idempotent()(method)),
            ViewSet,
            rest_post,
            "charge",
        ).as_view({"post": "charge"}),
        "IdempotentViewMixin",
    ),
    "method of no view": (lambda: on_method(idempotent(), object).post, "class-based views"),
    # ---- @api_view
    "above api_view": (lambda: idempotent()(api_view(["POST"])(rest)), GUARDED),
    "below api_view": (lambda: api_view(["POST"])(idempotent()(rest)), GUARDED),
    "above async api_view": (lambda: idempotent(**LEASE)(async_api_view(["POST"])(arest)), GUARDED),
    "below async api_view": (lambda: async_api_view(["POST"])(idempotent(**LEASE)(arest)), GUARDED),
    # ---- the mixin
    "mixin": (lambda: mixed(APIView, rest_post).as_view(), GUARDED),
    "mixin on async": (lambda: mixed(AsyncAPIView, arest_post, **LEASE).as_view(), GUARDED),
    "mixin on async, atomic": (
        lambda: mixed(AsyncAPIView, arest_post).as_view(),
        "no transaction can cover it",
    ),
    "mixin on an async ViewSet": (
        lambda: mixed(AsyncViewSet, arest_post, **LEASE).as_view({"post": "create"}),
        GUARDED,
    ),
    "mixin on DRF's with async handlers": (
        lambda: mixed(APIView, arest_post).as_view(),
        "does not await",
    ),
    "mixin on DRF's, leased": (
        lambda: mixed(APIView, arest_post, **LEASE).as_view(),
        "does not await",
    ),
    "mixin on DRF's, required": (
        lambda: mixed(APIView, arest_post, required=True).as_view(),
        "does not await",
    ),
    "mixin with a dict": (
        lambda: made(
            IdempotentViewMixin, APIView, idempotency={"required": True}, post=rest_post
        ).as_view(),
        "Type idempotency = Policy",
    ),
    # ---- the middleware
    "middleware: function": (lambda: pay, GUARDED),
    "middleware: partial": (lambda: functools.partial(pay), NOT_REPLAYED),
    "middleware: instance": (Callable_, NOT_REPLAYED),
    "middleware: instance with slots": (Slotted, NOT_REPLAYED),
    "middleware: bound method": (lambda: Site().pay, NOT_REPLAYED),
    "middleware: class that answers in dispatch": (InDispatch.as_view, NOT_REPLAYED),
    "middleware: async function": (lambda: apay, "is async"),
    "middleware: class of DRF": (
        lambda: made(APIView, post=rest_post, permission_classes=()).as_view(),
        GUARDED,
    ),
    "middleware: class of DRF in csrf_exempt": (
        lambda: csrf_exempt(made(APIView, post=rest_post, permission_classes=()).as_view()),
        GUARDED,
    ),
    "middleware: async class of DRF": (
        lambda: made(AsyncAPIView, post=arest_post).as_view(),
        "async",
    ),
    "middleware: decorated class of DRF": (
        lambda: login_required(made(APIView, post=rest_post, permission_classes=()).as_view()),
        "is inside another decorator",
    ),
}


def route(settings: Settings, view: Any) -> None:
    settings.ROOT_URLCONF = urlconf = ModuleType("urlconf")
    urlconf.urlpatterns = [path("it/", view)]  # type: ignore[attr-defined]


def send(
    make: Callable[[], Any], settings: Settings, user: User, *, on_asgi: bool = False
) -> list[Any]:
    """Send the same keyed request twice."""
    route(settings, make())
    if not on_asgi:
        client = Client()
        client.force_login(user)
        return [client.post("/it/", headers={"Idempotency-Key": "k"}) for _ in range(2)]

    async def both() -> list[Any]:
        client = AsyncClient()
        await client.aforce_login(user)
        return [await client.post("/it/", headers={"Idempotency-Key": "k"}) for _ in range(2)]

    return async_to_sync(both)()


@pytest.mark.parametrize("on_asgi", [False, True], ids=["wsgi", "asgi"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_is_guarded_or_refused(
    settings: Settings, admin_user: User, shape: str, *, on_asgi: bool
) -> None:
    """Two keyed requests are one effect, or a sentence says what to do and nothing has happened."""
    if not shape.startswith("middleware"):
        settings.MIDDLEWARE = settings.MIDDLEWARE[:-1]
    make, refusal = SHAPES[shape]
    if refusal in (GUARDED, NOT_REPLAYED):
        answers = send(make, settings, admin_user, on_asgi=on_asgi)
        again = (201, "replayed") if refusal is GUARDED else (403, "refused")
        assert [(answer.status_code, answer[HEADER]) for answer in answers] == [
            (201, "created"),
            again,
        ]
        assert effects() == 1
        return
    with pytest.raises((ImproperlyConfigured, ConfigurationError), match=refusal):
        send(make, settings, admin_user, on_asgi=on_asgi)
    assert effects() == 0


def test_a_callable_without_attributes_under_atomic_requests(
    settings: Settings, admin_user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The middleware runs it in that transaction, as Django would."""
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)
    first, retry = send(Slotted, settings, admin_user)
    assert [(first.status_code, first[HEADER]), (retry.status_code, effects())] == [
        (201, "created"),
        (403, 1),
    ]
    assert Client().post("/it/").status_code == 201


@pytest.mark.parametrize("method", [post, apost], ids=["sync", "async"])
def test_a_dispatch_that_passes_its_handler_by(
    settings: Settings, admin_user: User, method: Any
) -> None:
    """What could not be seen before raises, so that nobody takes the response for a guarded one.

    A refusal is one.
    """
    settings.MIDDLEWARE = settings.MIDDLEWARE[:-1]
    policy = {} if method is post else LEASE
    route(settings, idempotent(**policy)(made(Sometimes, post=method)).as_view())
    client = Client()
    client.force_login(admin_user)
    with pytest.raises(ConfigurationError, match=r"without calling post\(\)"):
        client.post("/it/?passes", headers={"Idempotency-Key": "k"})
    assert client.post("/it/?refuses", headers={"Idempotency-Key": "k"})[HEADER] == "refused"
    assert client.post("/it/?passes").status_code == 201
