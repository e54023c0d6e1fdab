"""Every route of the testproject: the same charge behind each entry point."""

from django.contrib import admin
from django.contrib.staticfiles.views import serve
from django.urls import include, path
from rest_framework.routers import SimpleRouter

from testproject.metrics import metrics
from testproject.payments import bank, tools, views
from testproject.payments.webhooks import webhook

api = SimpleRouter()
api.register("charges", views.ChargeViewSet, basename="charge")

urlpatterns = [
    # Where a visitor of the demo begins
    path("", views.home),
    # The mixin: POST and GET /api/charges/, POST /api/charges/<pk>/refund/
    path("api/", include(api.urls)),
    # The decorator: on a DRF function view, a plain view, an async view
    path("api/payouts/", views.payout),
    # A bank over HTTP, through the client half; and that bank
    path("api/transfers/", views.transfer),
    path("bank/transfers/", bank.transfers),
    path("plain/charges/", views.plain_charges),
    path("async/charges/", views.async_charges),
    # The middleware alone: the same views, undecorated
    path("middleware/charges/", views.bare_charges),
    path("middleware/api/charges/", views.BareChargeView.as_view()),
    # A tool that agents call
    path("mcp/", tools.mcp),
    # A function under the id of a signed message
    path("webhook/", webhook),
    # How often the work really ran, for staff
    path("api/effects/", views.EffectList.as_view()),
    # What became of all requests, for Prometheus: METRICS=django_idempotency.contrib.metrics.prometheus.PrometheusMeter
    path("metrics/", metrics, name="metrics"),
    path("admin/", admin.site.urls),
    # The admin's own style sheets, also without DEBUG: the demo has no web server in front
    path("static/<path:path>", serve, {"insecure": True}, name="static"),
]
