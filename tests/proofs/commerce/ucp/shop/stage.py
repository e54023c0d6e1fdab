"""What a test arranges in the shop: a request that is held, one that fails, and what has been
answered.
"""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ....clients.api.stage import Stage


class ShopStage(Stage):
    """A request can also break, after all that it has written."""

    def reset(self) -> None:
        super().reset()
        self.breaking = False

    def in_view(self) -> None:
        super().in_view()
        if self.breaking:
            self.breaking = False
            raise RuntimeError("the shop has broken")


stage = ShopStage()


def noted(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Note each answer: a middleware."""

    def respond(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        stage.answered(response.status_code, replayed="Idempotent-Replayed" in response)
        return response

    return respond
