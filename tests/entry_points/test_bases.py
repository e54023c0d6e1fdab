"""The mixin in the bases of a class: where requests would pass it by, the class is refused as it is
made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from rest_framework import generics, mixins, views, viewsets
from rest_framework.decorators import action
from rest_framework.response import Response

from django_idempotency import Policy
from django_idempotency.rest_framework import IdempotentViewMixin

pytestmark = pytest.mark.unit

Make = Callable[[], type[Any]]


class Audited(views.APIView):
    """Another package's view, whose dispatch() calls super()."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return super().dispatch(request, *args, **kwargs)


class Deaf:
    """A mixin that responds without super()."""

    def dispatch(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


class Listening:
    """A mixin that calls super(), in a function inside of its dispatch()."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        def run() -> Any:
            return super(Listening, self).dispatch(request, *args, **kwargs)  # type: ignore[misc]

        return run()


class Guarded(IdempotentViewMixin, views.APIView):
    pass


def made(*bases: type[Any], **members: Any) -> type[Any]:
    return type("Charges", bases, members)


def closed_over(dispatch: Any) -> Any:
    """Decorate a method as a careless decorator does: without functools.wraps."""

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        return dispatch(self, *args, **kwargs)

    return called


@pytest.mark.parametrize(
    "bases",
    [
        (views.APIView, IdempotentViewMixin),
        (Audited, IdempotentViewMixin),
        (generics.CreateAPIView, IdempotentViewMixin),
        (mixins.CreateModelMixin, generics.GenericAPIView, IdempotentViewMixin),
        (viewsets.ModelViewSet, IdempotentViewMixin),
        (viewsets.GenericViewSet, IdempotentViewMixin),
        (viewsets.ViewSetMixin, IdempotentViewMixin, views.APIView),
        (Deaf, IdempotentViewMixin, views.APIView),
        (Deaf, Guarded),
    ],
    ids=lambda bases: "-".join(base.__name__ for base in bases),
)
def test_a_base_before_the_mixin(bases: tuple[type[Any], ...]) -> None:
    """A base that responds without the mixin is refused before it, with the line to type."""
    with pytest.raises(
        ImproperlyConfigured,
        match=r"Put the mixin first: class Charges\(IdempotentViewMixin, …\)\.",
    ):
        made(*bases)


@pytest.mark.parametrize(
    "dispatch",
    [
        lambda self, request: HttpResponse(),
        method_decorator(never_cache)(views.APIView.dispatch),
        closed_over(views.APIView.dispatch),
        Deaf.dispatch,
    ],
    ids=["own", "decorated", "closed over", "taken"],
)
def test_an_own_dispatch_without_super(dispatch: Any) -> None:
    """A class with the mixin whose own dispatch() does not reach it is refused, and so is that of
    its subclass.
    """
    with pytest.raises(ImproperlyConfigured, match=r"does not call super\(\)\.dispatch\(\)"):
        made(IdempotentViewMixin, views.APIView, dispatch=dispatch)
    with pytest.raises(ImproperlyConfigured, match=r"does not call super\(\)\.dispatch\(\)"):
        made(Guarded, dispatch=dispatch)


@pytest.mark.parametrize(
    ("bases", "members"),
    [
        ((IdempotentViewMixin, viewsets.ModelViewSet), {}),
        ((IdempotentViewMixin, Audited), {}),
        # What comes after the mixin is the project's own matter.
        (
            (IdempotentViewMixin, Deaf, views.APIView),
            {},
        ),
        ((Listening, IdempotentViewMixin, views.APIView), {}),
        ((Audited, Guarded), {}),
        ((Guarded,), {"dispatch": Listening.dispatch}),
        ((Guarded,), {"dispatch": method_decorator(never_cache)(Guarded.dispatch)}),
        ((Guarded,), {"dispatch": closed_over(Guarded.dispatch)}),
    ],
)
def test_what_reaches_the_mixin(bases: tuple[type[Any], ...], members: dict[str, Any]) -> None:
    """A class whose requests reach the mixin is made."""
    assert issubclass(made(*bases, **members), IdempotentViewMixin)


def test_a_policy_under_another_name() -> None:
    """A policy that nobody reads is refused as its class is made."""
    with pytest.raises(
        ImproperlyConfigured, match=r"Charges\.idempotency_policy is a Policy that nobody reads"
    ):
        made(IdempotentViewMixin, views.APIView, idempotency_policy=Policy(required=True))
    with pytest.raises(ImproperlyConfigured, match=r"Type idempotency = Policy\(…\)"):
        made(Guarded, policy=Policy(required=True))


def test_policies_that_are_read() -> None:
    """A policy is read by an action, by get_idempotency_policy(), or under two names."""

    class Charges(IdempotentViewMixin, viewsets.ViewSet):
        strict = Policy(required=True)

        @action(detail=True, methods=["post"], idempotency=strict)
        def refund(self, request: Any, pk: str) -> Response:
            return Response()

    class Deciding(IdempotentViewMixin, views.APIView):
        strict = Policy(required=True)

        def get_idempotency_policy(self) -> Policy:
            return self.strict

    class Named(IdempotentViewMixin, views.APIView):
        strict = Policy(required=True)
        idempotency = strict

    class Later(Deciding):
        stricter = Policy(required=True, ttl=60)

    assert all(issubclass(each, IdempotentViewMixin) for each in (Charges, Named, Later))
