"""The users of the tests."""

from __future__ import annotations

import factory
from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model
from rest_framework.authtoken.models import Token

PASSWORD = "correct horse battery staple"


class UserFactory(factory.django.DjangoModelFactory[User]):
    class Meta:
        model = User

    username = factory.Sequence(lambda n: f"user-{n}")
    email = factory.LazyAttribute(lambda user: f"{user.username}@example.com")
    password = factory.django.Password(PASSWORD)


class AdminFactory(UserFactory):
    username = factory.Sequence(lambda n: f"admin-{n}")
    is_staff = True
    is_superuser = True


class TokenFactory(factory.django.DjangoModelFactory[Token]):
    class Meta:
        model = Token
        django_get_or_create = ("user",)

    user = factory.SubFactory(UserFactory)


def grant(user: User, model: type[Model], *codenames: str) -> None:
    """Grant permissions on a model.

    Their rows are made here: conftest.py keeps a flush from making all of them.
    """
    about = ContentType.objects.get_for_model(model)
    for codename in codenames:
        user.user_permissions.add(
            Permission.objects.get_or_create(codename=codename, content_type=about)[0]
        )
