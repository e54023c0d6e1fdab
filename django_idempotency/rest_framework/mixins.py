"""The mixin's door: after DRF's authentication, permissions and throttles, around everything else."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, cast

from ..core.policy import SAFE_METHODS, Policy
from ..errors import Problem
from ..http.exchange import Exchange, key_of, may_have_key, terms_of
from ..http.problems import problem_response
from ..http.responses import render
from ..http.selection import compile_expressions
from ..marks import EXEMPT
from ..transactions import EVERYTHING, Opened, atomic_requests, declared_for, leave_atomic_requests
from . import problems
from .problems import IdempotencyException

if TYPE_CHECKING:
    from django.http import HttpRequest
    from django.http.response import HttpResponseBase
    from rest_framework.request import Request
    from rest_framework.views import APIView as Base
else:
    Base = object


class IdempotentViewMixin(Base):
    """Makes the unsafe methods of an APIView or ViewSet safe to retry. It stands before them in the bases.

    The guard opens when DRF calls the handler, so a replay repeats authentication, permissions and throttles, and it
    closes around the rendered response, so that exceptions which DRF answers are answers.
    """

    #: The terms of every action; or override `get_idempotency_policy()`.
    idempotency: Policy = Policy()
    #: Is a key without a principal refused? The middleware, which lends this mixin, lets such a request through.
    _idempotency_strict = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Compile what the class selects by. Raises `ValueError` for a wrong expression."""
        super().__init_subclass__(**kwargs)
        if isinstance(policy := vars(cls).get("idempotency"), Policy):
            compile_expressions(policy)

    @classmethod
    def as_view(cls, *args: Any, **kwargs: Any) -> Any:
        """Leave ATOMIC_REQUESTS: the claim must be committed first. dispatch() opens it where nothing is guarded."""
        return leave_atomic_requests(super().as_view(*args, **kwargs))

    def get_idempotency_policy(self) -> Policy:
        """Return the terms of this request; `self.action`, `self.request` and `self.kwargs` are set."""
        return self.idempotency

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Guard the handler of an unsafe method, if the request carries a key."""
        declared = declared_for(request)
        name = (request.method or "").lower()
        handler = getattr(self, name, None) if name in self.http_method_names else None
        if handler is None or request.method in SAFE_METHODS or hasattr(handler, EXEMPT):
            with atomic_requests(declared):
                return super().dispatch(request, *args, **kwargs)
        guard = _Guard(self, handler, declared)
        of_instance = name in vars(self)  # a ViewSet's
        setattr(self, name, functools.wraps(handler)(guard))
        try:
            # With a key, initial() and the handler open them each: the claim is committed in between.
            with atomic_requests(EVERYTHING if self._may_have_key(request) else declared):
                response: HttpResponseBase = super().dispatch(request, *args, **kwargs)
            if guard.exchange is not None:
                render(response)
        except _Answered as answered:
            return answered.response
        except BaseException as error:
            if guard.exchange is not None:
                guard.exchange.fail(error, committed=guard.committed)
            raise
        finally:
            delattr(self, name)  # the guard leads back to the view
            if of_instance and guard.exchange is None:  # the response is not rendered: renderers ask the view for it
                setattr(self, name, handler)
        return response if guard.exchange is None else _settled(self, guard.exchange, response)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authenticate, permit and throttle, in the transaction that ATOMIC_REQUESTS asks for."""
        http = request._request
        keyed = http.method not in SAFE_METHODS and self._may_have_key(http)
        with atomic_requests(declared_for(http) if keyed else EVERYTHING):
            super().initial(request, *args, **kwargs)

    def _may_have_key(self, request: HttpRequest) -> bool:
        """Asked before DRF knows the action, so what a `get_idempotency_policy()` will say is not known."""
        decides = type(self).get_idempotency_policy is not IdempotentViewMixin.get_idempotency_policy
        return decides or may_have_key(request, self.idempotency)

    def handle_exception(self, exc: Exception) -> Any:
        """Answer our own problems; all else is DRF's."""
        if isinstance(exc, IdempotencyException):
            return problems.answer(self, exc)
        return super().handle_exception(exc)


class _Answered(BaseException):
    """Leaves DRF's dispatch with an answer that is finished: no exception handler and no finalize_response is for it."""

    def __init__(self, response: HttpResponseBase) -> None:
        super().__init__()
        self.response = response


def _settled(view: IdempotentViewMixin, exchange: Exchange, response: HttpResponseBase) -> HttpResponseBase:
    try:
        return exchange.settle(response)
    except Problem as problem:
        if problems.has_own_handler(view):
            answer = view.handle_exception(IdempotencyException(problem))
            answer = view.finalize_response(view.request, answer, *view.args, **view.kwargs)
            render(answer)
            return cast("HttpResponseBase", answer)
        return problem_response(problem)


class _Guard:
    """Stands in for one handler, for one request."""

    def __init__(self, view: IdempotentViewMixin, handler: Any, declared: set[str]) -> None:
        self._view = view
        self._handler = handler
        self._declared = declared
        self.exchange: Exchange | None = None
        self._requests = Opened()
        self._answer: Any = None

    def __call__(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        try:
            self._open(request)
        except Problem as problem:
            if problems.has_own_handler(self._view):
                raise IdempotencyException(problem) from problem
            raise _Answered(problem_response(problem)) from problem
        alias = self.exchange.atomic_alias if self.exchange is not None else None
        keyed = self._view._may_have_key(request._request)  # noqa: SLF001 - ours
        declared = self._declared if keyed else EVERYTHING  # dispatch() has opened them
        with atomic_requests(declared, but=alias) as self._requests:
            self._answer = self._handler(request, *args, **kwargs)
        return self._answer

    def committed(self) -> Any:
        """Return the handler's answer, finished, if its writes are committed although something failed after that."""
        if not self._requests.committed:
            return None
        view = self._view
        return view.finalize_response(view.request, self._answer, *view.args, **view.kwargs)

    def _open(self, request: Request) -> None:
        http = request._request
        policy = self._view.get_idempotency_policy()
        key = key_of(http, policy)
        if key is None:
            return
        strict = self._view._idempotency_strict  # noqa: SLF001 - ours, named so that no project has it by chance
        exchange = Exchange.of(http, terms_of(policy), key=key, user=request.user, source=request, strict=strict)
        if exchange is None:
            return
        if (answer := exchange.open()) is not None:
            raise _Answered(answer)
        self.exchange = exchange
