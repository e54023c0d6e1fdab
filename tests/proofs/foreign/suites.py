"""The suites: what is taken from the index, in which version, and how its tests are started.

Versions have hashes, since these archives are run. Nothing that a suite tests is changed; a test
left out of a run has its reason here, and on the page.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

HERE = Path(__file__).resolve().parent

#: How a suite runs with us: installed, and installed with a fresh key on each unsafe request.
#: "without" is recorded.
OURS = ("installed", "keyed")


@dataclass(frozen=True, kw_only=True)
class Archive:
    """A source distribution, by its name in the index."""

    name: str
    version: str
    sha256: str
    #: Our files that are copied into one of its folders.
    support: tuple[Path, str] | None = None

    @property
    def folder(self) -> str:
        return f"{self.name.replace('-', '_')}-{self.version}"


@dataclass(frozen=True, kw_only=True)
class Suite:
    name: str
    archive: Archive
    #: The number of requests that must be guarded in the keyed run; otherwise "identical" would
    #: mean nothing.
    guards: int
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    #: Tests that are not run: each is a file, class or test, by its path.
    leave_out: tuple[str, ...] = ()

    @property
    def options(self) -> list[str]:
        """The arguments of pytest."""
        left_out = [
            f"--deselect={path}" if "::" in path else f"--ignore={path}" for path in self.leave_out
        ]
        return [*self.arguments, *left_out]


REST_FRAMEWORK = Archive(
    name="djangorestframework",
    version="3.18.3",
    sha256="446a9b352e7eff630421ab3f2328bd2401b109a9470afa4a31189994911ed030",
)
ALLAUTH = Archive(
    name="django-allauth",
    version="65.21.1",
    sha256="128344e260a22b62796747be0a2249ad9488a509c1aa34ab35e3fcf22862dd9e",
)
OAUTH_TOOLKIT = Archive(
    name="django-oauth-toolkit",
    version="3.4.1",
    sha256="c4de73c0765eed55a99ea0fa8433b20664dcc1f43930149cff569abed166c5c2",
    # Its distribution has the tests, without the settings, fixtures and models that they import.
    support=(HERE / "oauth_toolkit", "tests"),
)
REST_AUTH = Archive(
    name="dj-rest-auth",
    version="7.2.0",
    sha256="f77af37da5cf6ee28f03f283a378a2f5761860e72d1d6f2fa3d50e6286000482",
)

REST_AUTH_SUITE = Suite(
    name="dj-rest-auth",
    archive=REST_AUTH,
    guards=190,
    # It has no configuration of pytest, and ours must not be found instead.
    arguments=("-c", "setup.cfg", "--rootdir=.", "--ds=tests.settings", "dj_rest_auth/tests"),
    # Its settings are found as its own runner finds them. 100,000 rounds per password are most of
    # its time in each run.
    environment={"PYTHONPATH": "dj_rest_auth", "FOREIGN_FAST_PASSWORDS": "1"},
    # It calls Facebook.
    leave_out=(
        "dj_rest_auth/tests/test_serializers.py::TestSocialLoginSerializer::test_http_error",
    ),
)

#: The longest first: two run at a time.
SUITES = (
    Suite(name="django-allauth", archive=ALLAUTH, guards=1800),
    Suite(
        name="django-oauth-toolkit",
        archive=OAUTH_TOOLKIT,
        guards=450,
        arguments=("-o", "addopts=", "--ds=tests.settings", "tests"),
        leave_out=(
            # Models, migrations, admins and routers of a test app that is not in the distribution.
            "tests/test_application_views.py",
            "tests/test_django_checks.py",
            "tests/test_migration_0012_hang.py",
            "tests/test_migration_db_alias.py",
            "tests/test_models.py",
            "tests/test_settings.py",
            "tests/test_device.py::TestDeviceFlowWithSwappedDeviceGrantModel",
            # URLconfs that are not in it; all of them use GET.
            (
                "tests/test_oidc_views.py::TestConnectDiscoveryInfoView::"
                "test_get_connect_discovery_info_fails_fast_on_unregistered_endpoint"
            ),
            "tests/test_oidc_views.py::TestOAuthProtectedResourceMetadataView",
            "tests/test_oidc_views.py::TestOAuthServerMetadataView",
            "tests/test_www_authenticate.py::TestBuildBearerChallenge",
            # Its private keys, and tokens that were signed with them.
            "tests/test_oidc_views.py::TestJwksInfoView",
            "tests/test_oidc_views.py::test_load_id_token_accept_expired",
            "tests/test_oidc_views.py::test_load_id_token_deny_expired",
            "tests/test_oidc_views.py::test_load_id_token_wrong_aud",
            "tests/test_oidc_views.py::test_rp_initiated_logout_expired_tokens_accept",
            "tests/test_oidc_views.py::test_rp_initiated_logout_expired_tokens_deny",
            "tests/test_oidc_views.py::test_validate_claims_wrong_iss",
            # Fixtures of ours that differ from its own.
            "tests/test_hybrid.py::test_claims_passed_to_code_generation",
            "tests/test_oidc_views.py::test_rp_initiated_logout_public_client_redirect_client_id",
        ),
    ),
    Suite(
        name="django-allauth, headless only",
        archive=ALLAUTH,
        guards=300,
        arguments=("--ds=tests.projects.headless_only.settings", "tests/apps/headless"),
    ),
    Suite(name="djangorestframework", archive=REST_FRAMEWORK, guards=60),
    Suite(
        name="djangorestframework, ATOMIC_REQUESTS",
        archive=REST_FRAMEWORK,
        guards=60,
        environment={"FOREIGN_ATOMIC_REQUESTS": "1"},
        # They count queries, and fail under ATOMIC_REQUESTS without us, too.
        leave_out=tuple(
            f"tests/authentication/test_authentication.py::{name}::test_post_json_makes_one_db_query"
            for name in ("CustomKeywordTokenAuthTests", "CustomTokenAuthTests", "TokenAuthTests")
        ),
    ),
    REST_AUTH_SUITE,
    replace(
        REST_AUTH_SUITE,
        name="dj-rest-auth, ATOMIC_REQUESTS",
        environment={**REST_AUTH_SUITE.environment, "FOREIGN_ATOMIC_REQUESTS": "1"},
    ),
)
