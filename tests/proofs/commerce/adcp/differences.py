"""Where a run differs from a storyboard in which each step is graded and passes, and why.

`storyboards/` is from adcontextprotocol/adcp (Apache License 2.0), commit
4439b1871329488ce24b213e88d855849fb41187: AdCP 3.2. The runner, version 6.11, is for 3.0: it grades
by the schemas of that, and leaves ungraded what it does not know. One request is adapted to it
(`START` in `run.cjs`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A step that the runner did not grade in full."""

    storyboard: str
    step: str
    #: What the runner says.
    said: tuple[str, ...]
    why: str


_OURS = "The runner does not know the contract. `buyer.py` takes the step."
_NOT_OFFERED = "The storyboard skips tools that a seller does not offer."

DIFFERENCES = (
    Difference(
        storyboard="idempotency",
        step="create_media_buy_concurrent",
        said=("ungraded: cross_response_count_distinct", "ungraded: cross_response_field_equal"),
        why=_OURS,
    ),
    Difference(
        storyboard="idempotency",
        step="expect_rate_limit_not_replayed",
        said=("skipped: missing_tool",),
        why=_OURS,
    ),
    *(
        Difference(
            storyboard="read_tool_idempotency",
            step=f"{tool}_with_idempotency_key",
            said=("skipped: missing_tool",),
            why=_NOT_OFFERED,
        )
        for tool in ("list_accounts", "list_creative_formats", "list_creatives")
    ),
)
