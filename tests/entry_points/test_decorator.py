"""What only the decorator does: functions, methods and classes.

It works, or raises at decoration.
"""

from __future__ import annotations

from typing import Any, cast

import pytest
from django.contrib.auth.decorators import login_required, permission_required
from django.contrib.auth.mixins import LoginRequiredMixin
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.http import require_GET, require_http_methods
from django.views.decorators.vary import vary_on_cookie
from rest_framework.decorators import api_view
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import Policy, idempotency_exempt, idempotent
from django_idempotency.http.markers import mark_of
from django_idempotency.models import IdempotencyRecord
from django_idempotency.rest_framework import IdempotentViewMixin

from .conftest import Connect, effects
from .outcome_views import write

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]


def answer(request: HttpRequest) -> JsonResponse:
    write()
    return JsonResponse({"method": request.method}, status=201)


@idempotent()
class Whole(LoginRequiredMixin, View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("read")

    def post(self, request: HttpRequest) -> HttpResponse:
        return answer(request)

    def put(self, request: HttpRequest) -> HttpResponse:
        return answer(request)


class OneMethod(View):
    @idempotent()
    def post(self, request: HttpRequest) -> HttpResponse:
        return answer(request)

    def put(self, request: HttpRequest) -> HttpResponse:
        return answer(request)


@idempotent()
class Drf(APIView):
    """A DRF class."""

    def post(self, request: Request) -> Response:
        write()
        return Response({"method": request.method}, status=201)


@idempotent()
class Base(View):
    """A project's base: its subclasses inherit what it guards."""

    def post(self, request: HttpRequest) -> HttpResponse:
        return answer(request)


class Members(LoginRequiredMixin, View):
    raise_exception = True


class Diamond(Base, Members):
    """Its MRO asks Members before View, wherever Base is decorated."""


class Counting(View):
    def post(self, request: HttpRequest) -> HttpResponse:
        return answer(request)


@idempotent()
class Inheriting(Counting):
    pass


class Doubling(Counting):
    def post(self, request: HttpRequest) -> HttpResponse:
        write()
        return super().post(request)


class DiamondHandler(Inheriting, Doubling):
    pass


class Overriding(Base):
    """It has its own handler, and one that its base lacks."""

    def post(self, request: HttpRequest) -> HttpResponse:
        write()
        return super().post(request)

    def patch(self, request: HttpRequest) -> HttpResponse:
        return answer(request)

    @idempotency_exempt
    def delete(self, request: HttpRequest) -> HttpResponse:
        return answer(request)


class Mixed(Counting, Base):
    """The handler comes from another base beside the guarded one."""


@idempotent(methods=["PUT"])
def only_put(request: HttpRequest) -> HttpResponse:
    return answer(request)


urlpatterns = [
    path("whole/", Whole.as_view()),
    path("one/", OneMethod.as_view()),
    path("drf/", Drf.as_view()),
    path("put/", only_put),
    path("diamond/", Diamond.as_view()),
    path("diamond-handler/", DiamondHandler.as_view()),
    path("overriding/", Overriding.as_view()),
    path("mixed/", Mixed.as_view()),
]


@pytest.mark.parametrize("url", ["whole", "one", "drf"])
def test_classes(user: User, connect: Connect, url: str) -> None:
    """The decorator works on a class, on one of its methods and on a DRF class."""
    send = connect(f"/{url}/", user)
    first, retry = send(), send()
    assert (first.status_code, retry.content, retry["Idempotent-Replayed"]) == (
        201,
        first.content,
        "true",
    )
    assert effects() == 1


def test_a_class_keeps_its_name() -> None:
    """Reverse look-ups, API docs and tracebacks depend on the name."""
    assert (Drf.__name__, Drf.__doc__, Drf.__module__) == ("Drf", "A DRF class.", __name__)


def test_mixins_of_the_class_come_first(client: Any, settings: Any) -> None:
    """LoginRequiredMixin refuses before the key is read."""
    settings.LOGIN_URL = "/login/"
    assert client.post("/whole/", headers={"Idempotency-Key": "k"}).status_code == 302
    assert not IdempotencyRecord.objects.exists()


@pytest.mark.parametrize("key", [{}, {"Idempotency-Key": "k"}])
def test_mixins_between_a_class_and_its_bases_are_asked(client: Any, key: dict[str, str]) -> None:
    """The decorator wraps what super() finds, not what the class had found when it was
    decorated.
    """
    assert client.post("/diamond/", headers=key).status_code == 403
    assert effects() == 0


def test_handlers_between_a_class_and_its_bases_run(user: User, connect: Connect) -> None:
    """The same holds for a handler that the decorated class inherits."""
    assert connect("/diamond-handler/", user)(key=None).status_code == 201
    assert effects() == 2


@pytest.mark.parametrize(
    ("handler", "ran"),
    [("post overriding", 2), ("patch overriding", 1), ("delete overriding", 2), ("post mixed", 1)],
)
def test_a_subclass_is_guarded(
    user: User, connect: Connect, settings: Any, handler: str, ran: int
) -> None:
    """What a subclass overrides or adds is guarded once, with all that it does, unless it is
    exempt.
    """
    settings.MIDDLEWARE = settings.MIDDLEWARE[:-1]
    method, url = handler.split()
    send = getattr(connect("", user).client, method)
    first, second = (send(f"/{url}/", headers={"Idempotency-Key": "k"}) for _ in range(2))
    assert (first.status_code, second.status_code, effects()) == (201, 201, ran)


def test_a_subclass_keeps_its_own_terms() -> None:
    """Its own decorator, on the class or on a method, wins over that of its base, and applies to
    its subclasses.
    """
    own = idempotent(ttl=60)

    class OnMethod(Base):
        @own
        def post(self, request: HttpRequest) -> HttpResponse:
            return answer(request)

    @own
    class OnClass(Base):
        def post(self, request: HttpRequest) -> HttpResponse:
            return answer(request)

    class Below(OnClass):
        def post(self, request: HttpRequest) -> HttpResponse:
            return answer(request)

    terms = [mark_of(cls.post).policy for cls in (OnMethod, OnClass, Below)]
    assert [policy and policy.ttl for policy in terms] == [60, 60, 60]


def test_a_subclass_that_cannot_be_guarded_is_refused() -> None:
    """A subclass is refused as the class itself would be."""
    with pytest.raises(ImproperlyConfigured, match="no transaction can cover it"):

        class Asynchronous(Base):
            async def post(self, request: HttpRequest) -> HttpResponse:  # type: ignore[override]
                return answer(request)


def test_only_the_named_methods(user: User, connect: Connect, settings: Any) -> None:
    """`methods` says for which methods a key works."""
    settings.MIDDLEWARE = settings.MIDDLEWARE[:-1]
    send = connect("/put/", user)
    assert [send().status_code, send().status_code, effects()] == [201, 201, 2]


def view(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


async def async_view(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


def handler(self: Any, request: HttpRequest) -> HttpResponse:
    return HttpResponse()


class Create(APIView):
    post = handler


def with_decorated_method() -> type[View]:
    class Decorated(View):
        @idempotent()
        def post(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse()

    return Decorated


#: What is said of two guards that contradict each other.
TWO = "two guards with different policies, .*only the outer one would count"

#: What cannot work → what the error says.
MISUSES: dict[str, tuple[Any, str]] = {
    "above login_required": (lambda: idempotent()(login_required(view)), "Swap the two lines"),
    "above permission_required": (
        lambda: idempotent()(permission_required("x.y")(view)),
        "Swap the two lines",
    ),
    "around as_view": (
        lambda: idempotent()(OneMethod.as_view()),
        r"Put @idempotent\(\) on the class",
    ),
    "in method_decorator": (
        lambda: method_decorator(idempotent(), name="get")(Whole),
        "on the method itself",
    ),
    "async and atomic": (lambda: idempotent()(async_view), 'guarantee="lease"'),
    "on no view": (lambda: idempotent()(type("Thing", (), {})), "not a subclass of View"),
    "on a thing": (lambda: idempotent()(cast("Any", 42)), "needs a view"),
    "unknown field": (lambda: idempotent(requierd=True), "requierd"),
    "bad value": (lambda: idempotent(ttl=-1), "ttl is a positive number of seconds"),
    "a policy as its argument": (
        lambda: idempotent(cast("Any", Policy())),
        r"Type @idempotent\(required=True, …\)",
    ),
    "a field without its name": (
        lambda: cast("Any", Policy)(True),
        r"Policy\(True\) does not say which field",
    ),
    "on reads alone": (lambda: idempotent()(require_GET(view)), "allows no unsafe method"),
    "on safe methods": (
        lambda: idempotent()(require_http_methods(["GET", "HEAD"])(view)),
        "a GET is never guarded",
    ),
    "on reads of DRF": (lambda: idempotent()(api_view(["GET"])(view)), "allows no unsafe method"),
    "around a class that reads": (
        lambda: idempotent()(ListAPIView.as_view()),
        "allows no unsafe method",
    ),
    "twice": (lambda: idempotent(ttl=5)(idempotent(required=True)(view)), TWO),
    "twice, apart": (
        lambda: idempotent(ttl=5)(vary_on_cookie(idempotent(required=True)(view))),
        TWO,
    ),
    "above and below api_view": (
        lambda: idempotent(ttl=5)(api_view(["POST"])(idempotent()(view))),
        TWO,
    ),
    "twice around as_view": (lambda: idempotent(ttl=5)(idempotent()(Create.as_view())), TWO),
    "twice on a class": (
        lambda: idempotent(ttl=5)(idempotent()(type("Twice", (View,), {"post": handler}))),
        TWO,
    ),
    "on a class and its method": (lambda: idempotent(ttl=5)(with_decorated_method()), TWO),
    "on a DRF class with a policy": (
        lambda: idempotent()(type("Two", (APIView,), {"idempotency": Policy(ttl=5)})),
        TWO,
    ),
    "on a class with a policy": (
        lambda: idempotent()(type("Two", (View,), {"idempotency": Policy(ttl=5)})),
        TWO,
    ),
    "on a mixed class": (
        lambda: idempotent(ttl=5)(
            type("Mixed", (IdempotentViewMixin, APIView), {"idempotency": Policy(ttl=6)})
        ),
        TWO,
    ),
    "on a mixed class without a policy": (
        lambda: idempotent(ttl=5)(type("Mixed", (IdempotentViewMixin, APIView), {})),
        "Set its `idempotency` attribute",
    ),
    "around a decorated DRF view": (
        lambda: idempotent()(login_required(api_view(["POST"])(view))),
        "IdempotentViewMixin|Swap",
    ),
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_what_cannot_work_raises_where_it_is_written(misuse: str) -> None:
    """The error comes at decoration, and says what to type instead; there is never a silent
    downgrade.
    """
    write_it, expected = MISUSES[misuse]
    with pytest.raises((ImproperlyConfigured, ValueError, TypeError), match=expected):
        write_it()


def test_a_method_of_a_drf_class_raises() -> None:
    """A DRF class uses the mixin as its entry point, however many of its methods are decorated."""

    class Wrong(APIView):
        @idempotent()
        def post(self, request: Request) -> None: ...

        @idempotent()
        def put(self, request: Request) -> None: ...

    with pytest.raises(ImproperlyConfigured, match="IdempotentViewMixin"):
        Wrong.as_view()


def test_two_guards_that_agree() -> None:
    """The same policy may be said twice, and a subclass may have one of its own."""
    twice = idempotent(required=True)(idempotent(required=True)(view))
    assert mark_of(twice).policy == Policy(required=True)

    @idempotent(ttl=5)
    class Parent(View):
        pass

    @idempotent(ttl=6)
    class Child(Parent):
        def post(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse()

    class GrandChild(with_decorated_method()):  # type: ignore[misc] # made by a function
        def put(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse()

    assert mark_of(idempotent(ttl=7)(GrandChild).put).policy == Policy(ttl=7)
    assert mark_of(Child.post).policy == Policy(ttl=6)
