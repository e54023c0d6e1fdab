"""The interceptors of sync and of `grpc.aio` servers: they differ in what is awaited.

Only unary methods are guarded: one that streams runs as if it were not listed. Metadata that a
method sends is not replayed.
"""

from __future__ import annotations

from inspect import isawaitable
from typing import Any

import grpc
from django.db import close_old_connections

from ...core.concurrency import run_to_completion
from ...errors import IdempotencyError
from .guarding import Aborted, Guards, Messages, failing, key_of, require_time
from .statuses import refused


class IdempotencyInterceptor(Guards, grpc.ServerInterceptor):
    """Guards methods of a `grpc.server()`, and closes connections as around a request. See
    `Guards`.
    """

    is_async = False

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """Return the handler of a method, guarded if it is to be.

        The first call also asks the server for each listed method: a server may have started
        without `checked()`.
        """
        if self.unserved:
            self.know([handler_call_details.method])
            self.ask(
                {
                    method: continuation(_like(handler_call_details, method))
                    for method in self.unserved
                }
            )
        method = handler_call_details.method
        handler = continuation(handler_call_details)
        function = self.guard_of(method, handler)
        if function is None:
            return handler
        messages = Messages(method, handler)

        def respond(request: Any, context: Any) -> Any:
            def work() -> bytes:
                with failing(context):
                    messages.response = handler.unary_unary(request, context)
                return messages.send(messages.response)

            close_old_connections()
            try:
                key = key_of(context)
                owner = self.owner(key, self.named(key, context))
                require_time(context)
                call = {
                    "caller": owner,
                    "key": key,
                    "request": messages.compared(request),
                    "work": work,
                }
                return messages.answered(function.idempotency.answer(**call), context)
            except IdempotencyError as raised:
                error = raised
            finally:
                close_old_connections()
            if isinstance(error, Aborted):
                return messages.aborted(error)
            return context.abort(*refused(context, error))

        return grpc.unary_unary_rpc_method_handler(respond, messages.receive, messages.send)


class AsyncIdempotencyInterceptor(Guards, grpc.aio.ServerInterceptor):
    """Guards coroutine functions of a `grpc.aio.server()`, whose policies say `guarantee="lease"`;
    `caller` may be one.
    """

    is_async = True

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """Return the handler of a method as `IdempotencyInterceptor` does."""
        if self.unserved:
            self.know([handler_call_details.method])
            self.ask(
                {
                    method: await continuation(_like(handler_call_details, method))
                    for method in self.unserved
                }
            )
        method = handler_call_details.method
        handler = await continuation(handler_call_details)
        function = self.guard_of(method, handler)
        if function is None:
            return handler
        messages = Messages(method, handler)

        async def respond(request: Any, context: Any) -> Any:
            async def work() -> bytes:
                with failing(context):
                    messages.response = await handler.unary_unary(request, context)
                return messages.send(messages.response)

            try:
                key = key_of(context)
                named = self.named(key, context)
                owner = self.owner(key, await named if isawaitable(named) else named)
                require_time(context)
                call = {
                    "caller": owner,
                    "key": key,
                    "request": messages.compared(request),
                    "work": work,
                }
                # At the client's deadline aio cancels what serves it: a retry must not run beside
                # what has begun.
                return messages.answered(
                    await run_to_completion(function.idempotency.aanswer(**call)), context
                )
            except IdempotencyError as raised:
                error = raised
            if isinstance(error, Aborted):
                return messages.aborted(error)
            return await context.abort(*refused(context, error))

        return grpc.unary_unary_rpc_method_handler(respond, messages.receive, messages.send)


def _like(details: Any, method: str) -> Any:
    """Return the details of a call that nobody made, to ask a server for the handler of a
    method.
    """
    return type(details)(method, ())
