"""REST framework's browsable API, whose forms send an idempotency key."""

from __future__ import annotations

from typing import Any

from rest_framework.renderers import BrowsableAPIRenderer

from .. import conf
from ..core.key_formats import ISSUED, UUID7
from ..core.policy import Policy


class IdempotentBrowsableAPIRenderer(BrowsableAPIRenderer):
    """The browsable API with a key on each unsafe request of its forms, kept for retries of an
    unchanged form.
    """

    template = "django_idempotency/browsable_api.html"

    def get_context(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the context of the template: REST framework's, the name of the header, and the
        version of its UUIDs.
        """
        context: dict[str, Any] = super().get_context(*args, **kwargs)
        policy = getattr(context["view"], "idempotency", None)
        policy = policy if isinstance(policy, Policy) else Policy()
        profile = conf.profile_of(policy.profile)
        key_format = conf.field(policy, "key_format")
        version = 7 if key_format == UUID7 else 4
        # The script makes a key itself, and sends it bare in a header, and nothing with it.
        speaks = (
            profile.carrier == "header"
            and profile.spelling != "quoted"
            and profile.first_sent_field is None
        )
        header = profile.field if speaks and key_format != ISSUED else None
        return {**context, "idempotency_header": header, "idempotency_key_version": version}
