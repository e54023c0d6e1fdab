"""The paths of the protocol's REST binding, and those that the suite itself asks for."""

from __future__ import annotations

from django.urls import path

from . import views

urlpatterns = [
    path(".well-known/ucp", views.discovery),
    path("about", views.about),
    path("checkout-sessions", views.CheckoutList.as_view()),
    path("checkout-sessions/<key>", views.CheckoutDetail.as_view()),
    path("checkout-sessions/<key>/complete", views.CheckoutComplete.as_view()),
    path("checkout-sessions/<key>/cancel", views.CheckoutCancel.as_view()),
    path("orders/<key>", views.OrderDetail.as_view()),
    path("testing/simulate-shipping/<key>", views.OrderShipping.as_view()),
]
