"""The app."""

from django.utils.translation import gettext_lazy as _

from .. import optional_app


class SuspectsConfig(optional_app.OptionalApp):
    """A page of the admin and a command."""

    name = "django_idempotency.contrib.suspects"
    label = "idempotency_suspects"
    verbose_name = _("Idempotency: suspects")
    check = "searching.check_suspects"
