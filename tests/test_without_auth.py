"""A project without django.contrib.auth, such as a service between machines, starts and is
guarded.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import django
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["django_idempotency"],
    MIDDLEWARE=["django_idempotency.middleware.IdempotencyMiddleware"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    IDEMPOTENCY={"ANONYMOUS": "shared"},
    ROOT_URLCONF="__main__",
    SECRET_KEY="without-auth",
    ALLOWED_HOSTS=["*"],
)
django.setup()
from django.core.management import call_command
from django.http import JsonResponse
from django.test import Client
from django.urls import path
from django.views import View

class Charge(View):
    def post(self, request):
        return JsonResponse({}, status=201)

urlpatterns = [path("", Charge.as_view())]
call_command("check")
call_command("migrate", verbosity=0)
send = lambda: Client().post("/", "{}", content_type="application/json", headers={"Idempotency-Key": "k" * 30})
print(send().status_code, send()["Idempotent-Replayed"])
"""


@pytest.mark.slow
def test_a_project_without_auth() -> None:
    """It starts, passes `check`, and replays."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines()[-1:] == ["201 true"], done.stderr
