"""How two outcomes of one scenario differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.system.spark.differential.stories import Cells, Outcome

MOMENTS = ("load", "first run", "after the change", "never")


def differences(ours: Outcome, sparks: Outcome, names: str) -> tuple[str, ...]:
    """Say in a few words each how the outcomes differ.

    Args:
        ours: What our source made of it.
        sparks: What Spark's own did.
        names: What an error has to name, "" for anything.
    """
    return tuple(_differences(ours, sparks, names))


def _differences(ours: Outcome, sparks: Outcome, names: str) -> Iterator[str]:
    if ours.schema and sparks.schema and ours.schema != sparks.schema:
        yield "columns"
    if ours.moment != sparks.moment:
        yield _moments(ours.moment, sparks.moment)
    else:
        yield from _rows(ours.rows, sparks.rows)
    if "never" not in (ours.moment, sparks.moment):
        yield from (
            f"{whose} does not name it"
            for whose, side in (("ours", ours), ("Spark's", sparks))
            if names.lower() not in side.error.lower()
        )


def _moments(ours: str, sparks: str) -> str:
    if sparks == "never":
        return "only ours fails"
    if ours == "never":
        return "only Spark's fails"
    return f"ours fails {'sooner' if MOMENTS.index(ours) < MOMENTS.index(sparks) else 'later'}"


def _rows(ours: Counter[Cells], sparks: Counter[Cells]) -> Iterator[str]:
    if ours - sparks:
        yield "ours reads more"
    if sparks - ours:
        yield "ours reads less"
