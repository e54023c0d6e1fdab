"""A till: a page with fetch.js, and a guarded view that it pays at:
`@pytest.mark.urls("tests.contrib.forms.till")`.
"""

from __future__ import annotations

import json
import threading

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template import engines
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from django_idempotency import idempotent
from testproject.payments.models import Effect

PAGE = """<!doctype html>{% load static %}<title>Till</title><link rel="icon" href="data:,">
<script {% if module %}type="module"{% endif %} src="{% static 'django_idempotency/fetch.js' %}"></script>"""

#: Holds each payment, so that a test can send others in the meantime.
gate = threading.Event()
gate.set()


def page(request: HttpRequest) -> HttpResponse:
    return HttpResponse(
        engines["django"].from_string(PAGE).render({"module": "module" in request.GET})
    )


@csrf_exempt
# A retry is told to come back when the lease ends.
@idempotent(required=True, guarantee="lease", lease=2)
def pay(request: HttpRequest) -> JsonResponse:
    gate.wait(20)
    made = Effect.objects.create(label=json.loads(request.body)["what"])
    return JsonResponse({"id": made.pk}, status=201)


def paid() -> list[str]:
    return sorted(Effect.objects.values_list("label", flat=True))


urlpatterns = [path("till/", page), path("pay/", pay)]
