"""The profile in which a request is answered: noted on it once its policy is known."""

from __future__ import annotations

from typing import NamedTuple

from django.http import HttpRequest

from ..core.profiles import Profile
from ..core.records import prints
from .facts import facts_of

#: On a request: what was noted.
_SPOKEN = "_idempotency_spoken"


@prints()
class Spoken(NamedTuple):
    """How the response to one request speaks about its key."""

    profile: Profile
    #: The well-formed value of the key's header, for profiles that repeat it; "": there is none.
    sent: str = ""


def speak(request: HttpRequest, profile: Profile, sent: object = None) -> None:
    """Note a profile on a request, and the value of its header once that has been read without a complaint."""
    setattr(
        request, _SPOKEN, Spoken(profile, "" if sent is None or profile.carrier != "header" else str(sent).strip(" \t"))
    )


def spoken_to(request: HttpRequest) -> Spoken:
    """Return what is noted on a request; if nothing is, the profile of the settings."""
    found: Spoken | None = getattr(request, _SPOKEN, None)
    return Spoken(facts_of(request).profile) if found is None else found
