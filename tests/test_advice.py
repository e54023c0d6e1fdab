"""No sentence advises what can pay twice: another key, or none, unless it is known that nothing was
done.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import django_idempotency
from django_idempotency.errors import ConfigurationError, IdempotencyError, Problem
from django_idempotency.functions.wording import SENTENCES
from django_idempotency.http.exchange import HEADER

ROOT = Path(django_idempotency.__file__).parent
#: Another key than the one that the request had, or none.
OTHER_KEY = re.compile(
    r"\b(new|another|different|other|fresh) (idempotency )?key\b|\bwithout (a|its|the|any) "
    r"key\b|\bno key\b"
    r"|\b(key|one) of (your|its) own\b|\banother name\b|\bdrop the key\b",
    re.IGNORECASE,
)
#: A sentence that warns of it.
WARNS = re.compile(
    r"Do not send it again with a new key|under a new key (it|that) could|another key could"
)
#: Error → why its sentence may speak of another key, or of none.
NOTHING_DONE = {
    "PossibleDuplicate": "it says which request it is like",
    "CalledItself": "the inner call has not begun, and waits for its own caller",
    "CallWithoutName": "nothing was sent, as it says",
}


def kinds() -> list[type[IdempotencyError]]:
    """Return every error of the package, also those of optional apps."""
    for file in ROOT.rglob("*.py"):
        if "contrib" in file.parts and re.search(
            r"^class \w+\((\w*Problem|IdempotencyError|InProgress)\):",
            file.read_text(),
            re.MULTILINE,
        ):
            import_module(
                ".".join(["django_idempotency", *file.relative_to(ROOT).with_suffix("").parts])
            )

    def below(cls: type[IdempotencyError]) -> set[type[IdempotencyError]]:
        return {each for child in cls.__subclasses__() for each in ({child} | below(child))}

    found = {
        each for each in below(IdempotencyError) if each.__module__.startswith("django_idempotency")
    }
    return sorted(found, key=lambda each: each.__name__)


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
def test_no_error_advises_another_key(kind: type[IdempotencyError]) -> None:
    """Only one that was refused for what is wrong with its key may be sent with another."""
    said = " ".join(inspect.cleandoc(kind.__doc__ or "").split())
    for sentence in re.split(r"(?<=[.:]) ", said):
        if OTHER_KEY.search(WARNS.sub("", sentence)):
            knows = issubclass(kind, Problem) and kind.nothing_done and kind.retry == "new-key"
            assert knows or kind.__name__ in NOTHING_DONE, sentence


def test_a_word_about_a_new_key_agrees_with_the_sentence() -> None:
    """`retry: new-key` is for a program what the sentence is for a person."""
    for kind in kinds():
        if issubclass(kind, Problem) and kind.retry == "new-key":
            assert kind.nothing_done, kind


@pytest.mark.parametrize("kind", SENTENCES, ids=lambda kind: kind.__name__)
def test_the_sentences_of_functions(kind: type[IdempotencyError]) -> None:
    """They name the function, say what to do, and speak of no HTTP; nor of another key, unless
    nothing was done.
    """
    sentence = SENTENCES[kind]
    assert "{name}" in sentence
    assert not re.search(
        r"request|response|Retry-After|header|client|HTTP|status|send it", sentence
    ), sentence
    assert re.search(r"[Cc]all it|[Ll]ook|[Ll]et |[Cc]heck|Give|carried out\.$", sentence), sentence
    if issubclass(kind, ConfigurationError):
        assert kind.__name__ in {"CalledItself", "LeaseInTransaction"}
    else:
        assert not OTHER_KEY.search(WARNS.sub("", sentence))


def test_every_error_of_a_call_has_a_sentence() -> None:
    """What `functions.running` and the engine raise for a call speaks of its function."""
    raised = {
        "InProgress",
        "OwnershipLost",
        "LostRace",
        "RequestMismatch",
        "KeyExpired",
        "RecordUnreadable",
    }
    raised |= {
        "ResponseNotStored",
        "OperationCancelled",
        "OperationUndone",
        "HeldForPerson",
        "StoreUnavailable",
    }
    raised |= {
        "StoreRefused",
        "TransactionLost",
        "OutcomeUnknown",
        "CalledItself",
        "DeadlinePassed",
    }
    assert raised <= {kind.__name__ for kind in SENTENCES}


def test_pages_for_clients() -> None:
    """Nor does the page of problems: what "the client" does there is one of the four words, in a
    sentence.
    """
    page = (ROOT.parent / "docs/reference/problems.md").read_text(encoding="utf-8")
    assert HEADER in page
    for section in page.split("\n## ")[1:]:
        code = section.split("\n", 1)[0]
        for advice in re.findall(r"\*The client\*(.*?)(?:\*You\*|\n\n|$)", section, re.DOTALL):
            said = " ".join(advice.split())
            if OTHER_KEY.search(WARNS.sub("", said)):
                assert code in WARNED, (code, said)


#: The sections that speak of a new key to warn of one.
WARNED = {"too-many-keys", "outcome-unknown"}
