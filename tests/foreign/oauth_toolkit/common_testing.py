"""The names that the tests take their bases from; they differ from Django's for several databases only."""

from __future__ import annotations

from django.test import TestCase, TransactionTestCase


class OAuth2ProviderTestCase(TestCase):
    pass


class OAuth2ProviderTransactionTestCase(TransactionTestCase):
    pass
