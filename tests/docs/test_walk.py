"""The page on how it works walks through the code as it is."""

from __future__ import annotations

import ast
import re
import sys
from types import FrameType
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.permissions import IsAuthenticated
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory, force_authenticate
from rest_framework.views import APIView

from django_idempotency.engine.bracket import GuardedCall
from django_idempotency.rest_framework import IdempotentViewMixin

from .pages import checked, code, text
from .walk import PACKAGE, PAGE, named, steps, walked, written

NAME = "explanation/how-it-works.md"


def test_the_functions_are_those_of_the_package() -> None:
    """A stale one fails: python -m tests.docs.walk writes them again."""
    page = PAGE.read_text(encoding="utf-8")
    assert written(page) == page
    assert walked() in page


def test_each_line_is_explained() -> None:
    """The table explains each line of the bracket that does something, in their order."""
    assert [code(row[0]) for row in checked(NAME, "bracket")] == list(steps())


def test_each_step_of_a_call_is_explained() -> None:
    """The table has each method of a call, in the order of its class."""
    methods = [name for name, value in vars(GuardedCall).items() if callable(value)]
    shown = [code(row[0]) for row in checked(NAME, "GuardedCall")]
    assert shown == [f"{name}()" for name in methods if not name.startswith("_")]


@pytest.mark.parametrize("page", [NAME, "explanation/for-reviewers.md"])
def test_each_function_is_where_the_page_says(page: str) -> None:
    """A file of the package that a page names is there, with the functions that it is said to
    have.
    """
    files = set(re.findall(r"`(\w+/[\w/]+\.py)`", text(page)))
    assert [file for file in files if not (PACKAGE / file).is_file()] == []
    pairs = re.findall(r"`([\w/]+\.py)` `(\w+)\(\)`", text(page))
    pairs += [
        (file, name) for name, file in re.findall(r"`(\w+)\(\)`,? of `([\w/]+\.py)`", text(page))
    ]
    assert len(pairs) > 5
    assert [(file, name) for file, name in pairs if not has(file, name)] == []


def has(file: str, name: str) -> bool:
    tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return any(isinstance(node, functions) and node.name == name for node in ast.walk(tree))


class Charge(IdempotentViewMixin, APIView):
    permission_classes = (IsAuthenticated,)

    def post(self, request: Any) -> Response:
        return Response({"amount": request.data["amount"]}, status=201)


@pytest.mark.any_database
@pytest.mark.django_db(transaction=True)
def test_a_first_request_goes_the_way_of_the_list() -> None:
    """A request to a DRF view calls the functions of the list, in their order."""
    request = APIRequestFactory().post(
        "/charges/", {"amount": 5}, format="json", headers={"Idempotency-Key": "order-1"}
    )
    force_authenticate(request, User.objects.create_user("alice"))
    called: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(f"{PACKAGE}/"):
            file = frame.f_code.co_filename.removeprefix(f"{PACKAGE}/")
            called.append((file, frame.f_code.co_name))

    sys.setprofile(note)
    try:
        response = Charge.as_view()(request)
    finally:
        sys.setprofile(None)
    assert response.status_code == 201
    listed = (
        text(NAME).partition("<!-- checked: a first request -->")[2].partition("\nIt may go")[0]
    )
    shown = list(named(listed))
    assert len(shown) > 40
    left = iter(called)
    assert [step for step in shown if step not in left] == []
