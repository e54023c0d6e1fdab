"""A package that is loaded after a function was decorated: its views are guarded, too."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from ...test_architecture import ROOT

SCRIPT = """
import json, sys
import tests.budgets.project as project
apps = "django.contrib.auth", "django.contrib.contenttypes", "django_idempotency", "django_idempotency.contrib.ninja"
project.configure(*apps, middleware=(f"{project.MODULE}.SignedIn",))
from django.contrib.auth.models import Group
from django.core.management import call_command
from django.test import Client
from django.urls import path
from django_idempotency import idempotent
call_command("migrate", verbosity=0)

@idempotent()
def charge(request, name: str):
    return {"id": Group.objects.create(name=name).pk}

loaded = "ninja" in sys.modules
from ninja import NinjaAPI
api = NinjaAPI()
api.post("/charge")(charge)
project.urlpatterns.append(path("", api.urls))
sent = [Client().post("/charge?name=a", headers={"Idempotency-Key": project.KEY}) for _ in range(2)]
print(json.dumps([loaded, [(each.status_code, each.json(), each["Idempotency-Status"]) for each in sent]]))
"""


@pytest.mark.slow
def test_an_operation_of_ninja() -> None:
    """A retry gets the first response."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        False,
        [[200, {"id": 1}, "created"], [200, {"id": 1}, "replayed"]],
    ]
