"""The tests of the suite that do not pass here, each with the reason. All others do."""

from __future__ import annotations

from ...foreign.reports import Explanation

#: How many tests the suite has.
TESTS = 59

_WEBHOOKS = (
    "The shop sends no events. What is sent after a COMMIT is the outbox's, which "
    "tests/contrib/outbox proves."
)

#: `suite` is a file of the suite; each of its requests that changes something has a key.
DIFFERENCES = (
    Explanation(
        suite="webhook_test",
        mode="keyed",
        shows="Expected at least 2 events, got 0",
        reason=_WEBHOOKS,
        tests=("WebhookTest::test_webhook_event_stream",),
    ),
    Explanation(
        suite="webhook_test",
        mode="keyed",
        shows="unexpectedly None",
        reason=_WEBHOOKS,
        tests=(
            "WebhookTest::test_webhook_order_address_known_customer",
            "WebhookTest::test_webhook_order_address_new_address",
        ),
    ),
)
