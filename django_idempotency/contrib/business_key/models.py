"""A model whose rows are made once per key, and the refusal of a second one."""

from __future__ import annotations

from typing import Any, TypeVar

from django.db import IntegrityError, models, router, transaction

from ...errors import ConfigurationError, Problem
from .fields import IdempotencyKeyField
from .running import Seen, business_key, running

M = TypeVar("M", bound="OncePerKey")


class AlreadyCreated(Problem):
    """An earlier request with this idempotency key has created this already. It was not created
    again: look it up.
    """

    status = 409
    code = "already-created"
    title = "This was created already"
    operation_state = "completed"
    ends_work = True
    delivery = "done"
    #: The row that is there: a view may respond with it.
    row: Any = None

    @classmethod
    def of(cls, row: models.Model) -> AlreadyCreated:
        """Return the refusal that names a row by its address, if it has one
        (`get_absolute_url()`).
        """
        address = getattr(row, "get_absolute_url", None)
        problem = cls(headers={} if address is None else {"Location": str(address())})
        problem.row = row
        return problem


class OncePerKey(models.Model):
    """A model of which each key makes one row, for good: also after its record has expired, or was
    lost with its store.
    """

    idempotency_key = IdempotencyKeyField()

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save the row.

        Raises `AlreadyCreated` instead of an `IntegrityError` if its key has made one.

        Raises `ConfigurationError` if this same attempt has: then the model needs a key for each of
        its rows.
        """
        handle = running() if self._state.adding else None
        if handle is None:
            super().save(*args, **kwargs)
            return
        using = kwargs.get("using") or router.db_for_write(type(self), instance=self)
        try:
            with transaction.atomic(using=using):  # what follows a refused INSERT can still ask
                super().save(*args, **kwargs)
        except IntegrityError:
            row = _made(type(self), self.idempotency_key, using)
            if row is None:
                raise
            raise self._refusal(handle, row) from None
        handle._rows.add((type(self), self.idempotency_key))  # noqa: SLF001 - ours

    @classmethod
    # Python 3.10 has no Self.
    def earlier(cls: type[M], using: str | None = None) -> M | None:  # noqa: PYI019
        """Return the row that an earlier attempt of this request, call or step has made; `None`:
        there is none, or no key.
        """
        key = business_key()
        if key is None:
            return None
        return cls._default_manager.db_manager(using).filter(idempotency_key=key).first()

    def _refusal(self, handle: Seen, row: models.Model) -> Exception:
        if (type(self), self.idempotency_key) not in handle._rows:  # noqa: SLF001 - ours
            return AlreadyCreated.of(row)
        return ConfigurationError(
            f"This work makes a second row of {self._meta.label}, and one key makes one. "
            "Give the model a field of its own, "
            "IdempotencyKeyField(unique=False), and a UniqueConstraint of that and of what "
            "tells the rows apart."
        )


def _made(model: type[models.Model], key: Any, using: str) -> models.Model | None:
    """Return the row of a key, if that is what refused another."""
    rows: Any = models.QuerySet(model, using=using)  # a manager of the project may hide some
    return None if key is None else rows.filter(idempotency_key=key).first()
