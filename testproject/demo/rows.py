"""What was promised, what was seen, and whether the two agree. Values only: no server, no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

NO_ANSWER = "no answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One HTTP response. `status` is `None` if the connection broke first."""

    status: int | None
    replayed: bool = False
    #: Of the problem document, if the response is one.
    code: str = ""
    retry_after: int | None = None
    body: bytes = b""

    @property
    def label(self) -> str:
        """The response in words, including what the IETF draft requires of a 409 and what is
        missing from it.
        """
        if self.status is None:
            return NO_ANSWER
        words = [
            str(self.status),
            *(["replayed"] if self.replayed else []),
            *([self.code] if self.code else []),
        ]
        if self.status == 409 and not self.retry_after:
            words.append("without Retry-After")
        return " ".join(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What a step must show."""

    #: Labels that must come, each this many times.
    answers: tuple[str, ...]
    #: Labels that may come in addition, any number of times.
    besides: Collection[str] = ()
    #: The attempt number of each effect that the step leaves behind.
    effects: tuple[int, ...] = ()

    def kept(self, labels: Iterable[str], effects: tuple[int, ...]) -> bool:
        """Does the step show this?"""
        left = Counter(labels)
        left.subtract(Counter(self.answers))
        return effects == self.effects and all(
            count == 0 or (count > 0 and label in self.besides) for label, count in left.items()
        )

    def __str__(self) -> str:
        return "\n".join([in_words(self.answers), *(f"or {label}" for label in self.besides)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One step of a journey."""

    journey: str
    sent: str
    promise: Promise
    answers: tuple[str, ...]
    effects: tuple[int, ...]
    #: Something worth knowing, such as how long it took.
    remark: str = ""
    #: Any other deviation, such as a replay with different bytes.
    complaints: tuple[str, ...] = ()

    @property
    def kept(self) -> bool:
        return not self.complaints and self.promise.kept(self.answers, self.effects)

    @property
    def seen(self) -> str:
        """The results: responses, the attempt that worked if it was not the first, and everything
        else.
        """
        later = (f"as attempt {attempt}" for attempt in sorted(set(self.effects) - {0, 1}))
        return "\n".join(
            [
                in_words(self.answers),
                *later,
                *([self.remark] if self.remark else []),
                *self.complaints,
            ]
        )

    @property
    def counted(self) -> str:
        """The number of effects, and the number promised."""
        return f"{len(self.effects)} / {len(self.promise.effects)}"


def in_words(labels: Iterable[str]) -> str:
    """Count equal labels, one line each: "19 x 409 in-progress"."""
    return "\n".join(
        label if count == 1 else f"{count} x {label}" for label, count in Counter(labels).items()
    )


def exit_code(rows: Collection[Row]) -> int:
    """Return 0 if there are rows and each is as promised, else 1."""
    return 0 if rows and all(row.kept for row in rows) else 1
