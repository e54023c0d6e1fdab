"""Every intended difference.

An unlisted difference fails the gate, and so does a listed one that no longer happens.
"""

from __future__ import annotations

from .reports import Explanation

_COUNTED = (
    "The test counts the queries of a request. A guarded one makes those of the guard, "
    "too: its savepoints, the claim, "
    "the row lock, the settle."
)
_FORBIDDEN = (
    "The test forbids any query, since its view is refused before the first one. The key "
    "of a guarded request is "
    "claimed before its view."
)

EXPLAINED = (
    Explanation(
        suite="djangorestframework",
        mode="keyed",
        shows="queries executed, 1 expected",
        reason=_COUNTED,
        tests=(
            "tests.authentication.test_authentication.CustomKeywordTokenAuthTests::test_post_json_makes_one_db_query",
            "tests.authentication.test_authentication.CustomTokenAuthTests::test_post_json_makes_one_db_query",
            "tests.authentication.test_authentication.TokenAuthTests::test_post_json_makes_one_db_query",
        ),
    ),
    Explanation(
        suite="django-oauth-toolkit",
        mode="keyed",
        shows="queries executed, 1 expected",
        reason=_COUNTED,
        tests=(
            (
                "tests.test_introspection_view.TestTokenIntrospectionViews"
                "::test_select_related_in_view_for_less_db_queries"
            ),
        ),
    ),
    *(
        Explanation(
            suite=suite,
            mode="keyed",
            shows="Database access not allowed",
            reason=_FORBIDDEN,
            tests=tests,
        )
        for suite, tests in {
            "django-allauth": (
                "tests.apps.headless.account.test_login::test_auth_password_input_error[app]",
                "tests.apps.headless.account.test_login::test_auth_password_input_error[browser]",
                "tests.apps.headless.account.test_reset_password::test_password_reset_flow_wrong_key[app-post]",
                "tests.apps.headless.account.test_reset_password::test_password_reset_flow_wrong_key[browser-post]",
                "tests.apps.headless.mfa.test_webauthn::test_passkey_login_rate_limit_applies_before_parsing[app]",
                "tests.apps.headless.mfa.test_webauthn::test_passkey_login_rate_limit_applies_before_parsing[browser]",
                "tests.apps.mfa.webauthn.test_views::test_passkey_login_rate_limit_applies_before_parsing",
                "tests.apps.socialaccount.providers.openid.tests::test_discovery_failure",
            ),
            "django-allauth, headless only": (
                "tests.apps.headless.account.test_login::test_auth_password_input_error[app]",
                "tests.apps.headless.account.test_login::test_auth_password_input_error[browser]",
                "tests.apps.headless.account.test_reset_password::test_password_reset_flow_wrong_key[app-post]",
                "tests.apps.headless.account.test_reset_password::test_password_reset_flow_wrong_key[browser-post]",
                "tests.apps.headless.mfa.test_webauthn::test_passkey_login_rate_limit_applies_before_parsing[app]",
                "tests.apps.headless.mfa.test_webauthn::test_passkey_login_rate_limit_applies_before_parsing[browser]",
            ),
        }.items()
    ),
)
