"""The routes of the view."""

from django.urls import path

from . import views

urlpatterns = [
    path("bare/", views.Bare.as_view()),
    path("ours/", views.Ours.as_view()),
    path("ours/again/", views.Ours.as_view()),
    path("ours/required/", views.OursRequired.as_view()),
    path("by-method/", views.ByMethod.as_view()),
    path("by-mixin/", views.ByMixin.as_view()),
    path("by-mixin/required/", views.ByMixinRequired.as_view()),
    path("idemkit/", views.Idemkit.as_view()),
    path("idemkit/again/", views.Idemkit.as_view()),
    path("idemkit/required/", views.IdemkitRequired.as_view()),
]
