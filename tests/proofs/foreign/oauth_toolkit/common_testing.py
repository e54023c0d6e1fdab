"""The names of the tests' base classes; they differ from Django's only for several databases."""

from __future__ import annotations

from django.test import TestCase, TransactionTestCase


class OAuth2ProviderTestCase(TestCase):
    pass


class OAuth2ProviderTransactionTestCase(TransactionTestCase):
    pass
