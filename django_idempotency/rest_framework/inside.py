"""A transaction that the project has opened around `dispatch()`: the guard joins it, and ends
before it does.

    enter ─ BEGIN ─ dispatch ─ permissions ─┬ claim ─ handler ─ finalize_response ─ store response ┬─ COMMIT ─ enter
                                            └──────────────────── savepoint ───────────────────────┘

The response is rendered there. Changes that the project's `dispatch()` makes to it afterwards are
not stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from django.db import connections, transaction
from django.http.response import HttpResponseBase

from ..core.conclusions import SettledState
from ..errors import Problem
from ..http.call import Call
from ..http.responses import render


class DispatchFinished(BaseException):
    """Leaves DRF's dispatch with a finished response, past its exception handler and
    finalize_response.

    The response is its argument, which no error report prints.
    """

    args: tuple[HttpResponseBase]

    def __repr__(self) -> str:
        return "DispatchFinished()"

    __str__ = __repr__


#: Where DRF's dispatch ends: by a response, or by an exception.
_ENDS = ("finalize_response", "handle_exception")


class Inside:
    """Ends the guard of one request where DRF's own dispatch ends, as enter() does elsewhere."""

    def __init__(self, entry: Any, call: Call) -> None:
        self._entry = entry
        self._call = call
        self._view = entry.view
        #: The view's own attributes that ours replace, while they do.
        self._replaced: dict[str, Any] | None = None

    def call(self, handler: Callable[[], Any]) -> Any:
        """Call the handler.

        Our methods replace the view's only after it, since the handler may call those itself.
        """
        try:
            response = handler()
        except Exception:
            self._stand_in()
            raise
        except BaseException as error:  # noqa: BLE001 - it is raised again
            self._fail(error)
        self._stand_in()
        return response

    def _stand_in(self) -> None:
        attributes = vars(self._view)
        self._replaced = {name: attributes[name] for name in _ENDS if name in attributes}
        attributes.update(finalize_response=self._finalize, handle_exception=self._handle)

    def leave(self) -> None:
        """Give the view its methods back."""
        replaced = self._replaced
        if replaced is not None:
            for name in _ENDS:
                vars(self._view).pop(name, None)
            vars(self._view).update(replaced)
            self._replaced = None

    def _handle(self, error: Exception) -> Any:
        self.leave()
        try:
            response = self._view.handle_exception(error)
        except BaseException as raised:  # noqa: BLE001 - it is raised again
            self._fail(raised)
        self._stand_in()
        return response

    def _finalize(self, *args: Any, **kwargs: Any) -> HttpResponseBase:
        self.leave()
        try:
            response: HttpResponseBase = self._view.finalize_response(*args, **kwargs)
            render(response)
        except BaseException as error:  # noqa: BLE001 - it is raised again
            self._fail(error)
        return self._settle(response)

    def _settle(self, response: HttpResponseBase) -> HttpResponseBase:
        operation = self._call.operation
        needs_rollback, self._entry.ended = operation.needs_rollback(), True
        try:
            response = self._call.settle(response)
        except Problem as problem:
            raise DispatchFinished(self._entry.respond_to(problem)) from problem
        alias = self._call.atomic_alias
        assert alias is not None, "see is_inside()"
        if (
            needs_rollback
            and operation.left_as is not SettledState.COMPLETED
            and connections[alias].in_atomic_block
        ):
            transaction.set_rollback(True, using=alias)  # all of it, as DRF has requested
        return response

    def _fail(self, error: BaseException) -> NoReturn:
        self._entry.ended = True
        problem = self._call.fail(error)
        raise DispatchFinished(self._entry.respond_to(problem)) from error
