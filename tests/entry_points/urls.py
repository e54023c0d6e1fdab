"""Each view behind each entry point: `@pytest.mark.urls("tests.entry_points.urls")`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.decorators import staff_member_required
from django.contrib.auth.decorators import login_required, permission_required, user_passes_test
from django.urls import path
from rest_framework.decorators import api_view, permission_classes, throttle_classes
from rest_framework.permissions import AllowAny, IsAdminUser, IsAuthenticated
from rest_framework.response import Response

from django_idempotency import Policy, idempotent
from django_idempotency.rest_framework import IdempotentViewMixin

from . import views


def derived(*bases: type[Any], **members: Any) -> Any:
    """Make a class for one route alone: the decorator changes the class that it is given."""
    return type(bases[-1].__name__, bases, members)


def mixed(cls: type[Any], **members: Any) -> Any:
    """Return the view of a DRF class with the mixin and a default policy."""
    return derived(IdempotentViewMixin, cls, idempotency=Policy(), **members).as_view()


# ------------------------------------------------------------------------------- responses, uploads

#: Entry point → the view of every kind of response.
ANSWERING = {
    "decorator": idempotent()(views.answers),
    "middleware": views.answers,
    "mixin": mixed(views.AnswersView),
    "adapted": views.AnswersView.as_view(),
}
#: Entry point → the view that reads what was sent.
READING = {
    "decorator": idempotent()(views.reading),
    "middleware": views.reading,
    "mixin": mixed(views.ReadingView),
    "adapted": views.ReadingView.as_view(),
    "above": idempotent()(api_view(["POST"])(views.reading_api())),
}

# ------------------------------------------------------------------------------------------- access

FUNCTION_RULES: dict[str, Callable[[Any], Any]] = {
    "login-required": login_required,
    "login-elsewhere": login_required(login_url="/elsewhere/", redirect_field_name="back"),
    "staff-member-required": staff_member_required,
    "permission-required": permission_required("payments.add_charge"),
    "permission-required-raising": permission_required("payments.add_charge", raise_exception=True),
    "user-passes-test": user_passes_test(
        lambda user: user.is_superuser, login_url="https://sso.example.com/"
    ),
}
CLASS_RULES = (
    views.ForLoggedIn,
    views.ForPermitted,
    views.ForPermittedRaising,
    views.ForSuperusers,
    views.ForLoggedInByDecorator,
)
REST_RULES: dict[str, dict[str, Any]] = {
    "is-authenticated": {"permission_classes": [IsAuthenticated]},
    "is-admin": {"permission_classes": [IsAdminUser]},
    "may-add-charges": {"permission_classes": [views.MayAddCharges]},
    "throttled": {"permission_classes": [AllowAny], "throttle_classes": [views.AllAtOnce]},
}


def pay_api() -> Callable[[Any], Response]:
    """Make a separate function for each rule: DRF's decorators store the rule on it."""

    def pay(request: Any) -> Response:
        return Response({"id": views.work()}, status=201)

    return pay


def ruled(function: Any, rule: dict[str, Any]) -> Any:
    """Make a DRF view from a function, under a rule."""
    for decorate, name in (
        (permission_classes, "permission_classes"),
        (throttle_classes, "throttle_classes"),
    ):
        if name in rule:
            function = decorate(rule[name])(function)
    return api_view(["POST"])(function)


def restricted() -> dict[str, Any]:
    """Return route → view for every rule behind every entry point."""
    routes: dict[str, Any] = {}
    for name, rule in FUNCTION_RULES.items():
        routes[f"decorator/{name}/"] = rule(idempotent()(views.pay))
        routes[f"middleware/{name}/"] = rule(views.pay)
    for cls in CLASS_RULES:
        routes[f"class/{cls.__name__}/"] = idempotent()(derived(cls)).as_view()
        method = idempotent()(views.PayView.post)
        routes[f"method/{cls.__name__}/"] = derived(cls, post=method).as_view()
        routes[f"middleware/{cls.__name__}/"] = cls.as_view()
    for name, given in REST_RULES.items():
        routes[f"mixin/{name}/"] = mixed(views.PayApi, **given)
        routes[f"adapted/{name}/"] = derived(views.PayApi, **given).as_view()
        routes[f"rest-class/{name}/"] = idempotent()(derived(views.PayApi, **given)).as_view()
        routes[f"above/{name}/"] = idempotent()(ruled(pay_api(), given))
        routes[f"below/{name}/"] = ruled(idempotent()(pay_api()), given)
    return routes


RESTRICTED = restricted()

#: These views do not authenticate.
OPEN = {
    "decorator/open/": idempotent()(views.pay),
    "class/open/": idempotent()(derived(views.PayView)).as_view(),
    "mixin/open/": mixed(views.PayApi, permission_classes=[]),
    "rest-class/open/": idempotent()(derived(views.PayApi, permission_classes=[])).as_view(),
    "middleware/open/": views.pay,
    "adapted/open/": derived(views.PayApi, permission_classes=[]).as_view(),
}

urlpatterns: list[Any] = [
    path("admin/", admin.site.urls),
    *(path(f"{entry_point}/answers/<kind>/", view) for entry_point, view in ANSWERING.items()),
    *(path(f"{entry_point}/reading/<how>/", view) for entry_point, view in READING.items()),
    *(path(route, view) for route, view in {**RESTRICTED, **OPEN}.items()),
]
