"""A shop of one form, as Django's own views have it, and as htmx and Turbo want it:
`@pytest.mark.urls("tests.contrib.forms.shop")`.
"""

from __future__ import annotations

import threading
from typing import Any

from django import forms
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.template import engines
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.generic import FormView

from django_idempotency import idempotent
from django_idempotency.contrib.forms import Form, idempotent_form
from testproject.payments.models import Effect
from testproject.urls import urlpatterns as project_urls

PAGE = """<!doctype html>{% load static idempotency %}<title>Order</title>
{% for script in scripts %}<script src="{% static script %}" defer></script>{% endfor %}
<h1>Order</h1>
<form method="post" {{ attributes|safe }}>{% csrf_token %}{% idempotency_field %}
{{ form.as_p }}<button name="then" value="pay">Order</button></form><div id="result"></div>"""
DONE = (
    "<!doctype html><title>Done</title><h1>Ordered: {{ count }}</h1><a href='{{ back "
    "}}'>Another</a>"
)

OWN = "django_idempotency/form.js"

#: Holds each order while it is cleared, so that a test can send others in the meantime.
gate = threading.Event()
gate.set()
began = threading.Event()


class OrderForm(forms.Form):
    item = forms.CharField(max_length=20)
    count = forms.IntegerField(min_value=1)

    def clean_item(self) -> str:
        item: str = self.cleaned_data["item"]
        if item == "nothing":
            raise forms.ValidationError("We have none.")  # which no browser knows
        return item


def page(template: str, request: HttpRequest, context: dict[str, Any], **more: Any) -> HttpResponse:
    return HttpResponse(engines["django"].from_string(template).render(context, request), **more)


def order(form: forms.Form) -> None:
    began.set()
    gate.wait(20)
    Effect.objects.create(label=f"{form.cleaned_data['item']} {form.cleaned_data['count']}")


def orders() -> list[str]:
    return sorted(Effect.objects.values_list("label", flat=True))


class Order(FormView):
    """Post, redirect, get. An invalid form is shown again with 200."""

    form_class = OrderForm
    scripts: tuple[str, ...] = (OWN,)
    attributes = ""
    refused = 200

    def render_to_response(self, context: dict[str, Any], **more: Any) -> HttpResponse:
        status = self.refused if self.request.method == "POST" else 200
        return page(
            PAGE,
            self.request,
            {**context, "scripts": self.scripts, "attributes": self.attributes},
            status=status,
        )

    def form_valid(self, form: Any) -> HttpResponse:
        order(form)
        return HttpResponseRedirect("/done/")


@login_required
@idempotent_form
def simple(request: HttpRequest) -> HttpResponseBase:
    return Order.as_view()(request)


@idempotent_form
@method_decorator(never_cache, name="dispatch")
class Fresh(Order):
    """Each Back asks for the page again."""


@idempotent_form
class WithoutScript(Order):
    scripts = ()


@idempotent_form
class Htmx(Order):
    """Its response is put beside the form, which stays. Attributes are not inherited in htmx 4: the
    form has them all.
    """

    attributes = 'hx-post="" hx-target="#result" hx-swap="innerHTML"'

    def form_valid(self, form: Any) -> HttpResponse:
        order(form)
        return HttpResponse(f"Ordered: {Effect.objects.count()}")


@idempotent_form
class Turbo(Order):
    """Its invalid form is shown again with 422."""

    scripts = (OWN, "turbo.js")
    refused = 422


@idempotent_form
class Strict(Order):
    """Only scripts and connections of this site."""

    def render_to_response(self, context: dict[str, Any], **more: Any) -> HttpResponse:
        response = super().render_to_response(context, **more)
        response["Content-Security-Policy"] = (
            "default-src 'none'; script-src 'self'; connect-src 'self'; img-src 'self'"
        )
        return response


@idempotent_form(anonymous="shared")
class Guests(Order):
    pass


def done(request: HttpRequest) -> HttpResponse:
    return page(
        DONE,
        request,
        {"count": Effect.objects.count(), "back": request.headers.get("Referer", "/")},
    )


def elsewhere(request: HttpRequest, where: str) -> HttpResponse:
    """Show a form that is sent to another address."""
    template = (
        "{% load idempotency %}<form method=post action='{{ where }}'>{% idempotency_field "
        "where %}</form>"
    )
    return page(template, request, {"where": where})


def bare(request: HttpRequest) -> HttpResponse:
    """Render without the request."""
    return HttpResponse(
        engines["django"].from_string("{% load idempotency %}{% idempotency_field %}").render({})
    )


@idempotent(profile=Form, key_format="uuid")
def made_by_clients(request: HttpRequest) -> HttpResponse:
    return page("{% load idempotency %}{% idempotency_field %}", request, {})


@idempotent_form
def one_page(request: HttpRequest) -> HttpResponse:
    """Answer with 200 and an empty form for the next one."""
    form = OrderForm(request.POST or None)
    if form.is_valid():
        order(form)
        form = OrderForm()
    search = OrderForm(request.GET)  # of another form, and invalid as long as nobody searches
    return page(PAGE, request, {"form": form, "search": search})


@idempotent_form
def late(request: HttpRequest) -> HttpResponse:
    """Find an error after the work."""
    form = OrderForm(request.POST or None)
    if form.is_valid():
        order(form)
        form.add_error(None, "sold out")
    if request.method == "POST" and "drop" in request.GET:
        request.idempotency.drop()  # type: ignore[attr-defined]
    return page(PAGE, request, {"form": form})


@idempotent_form(guarantee="lease")
async def by_a_loop(request: HttpRequest) -> HttpResponse:
    return HttpResponse("paid")


urlpatterns = [
    path("", include("django_idempotency.contrib.limits.issued_keys")),
    path("order/", simple),
    path("fresh/", Fresh.as_view()),
    path("without/", WithoutScript.as_view()),
    path("htmx2/", Htmx.as_view(scripts=(OWN, "htmx2.js"))),
    path("htmx4/", Htmx.as_view(scripts=(OWN, "htmx4.js"))),
    path("strict/", Strict.as_view()),
    path("turbo/", Turbo.as_view()),
    path("guests/", Guests.as_view()),
    path("done/", done),
    path("shown-at<path:where>", elsewhere),
    path("bare/", bare),
    path("by-clients/", made_by_clients),
    path("one-page/", one_page),
    path("late/", late),
    path("by-a-loop/", by_a_loop),
    *project_urls,
]
