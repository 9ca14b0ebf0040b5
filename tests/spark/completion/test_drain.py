"""What `drain` makes of a query's progress reports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from kohort.spark.completion.drain import _controls
from tests.spark.reports import manifest, report, source

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

END = manifest(p0=[0, 5])
OTHER = {"flights": {"0": 23}}


class Query:
    """A query whose last report is this."""

    def __init__(self, last: StreamingQueryProgress | None) -> None:
        self.lastProgress = last


def controls(last: StreamingQueryProgress | None) -> list[Path]:
    return _controls(cast("StreamingQuery", Query(last)))


def test_the_directories_of_all_sources_are_known_or_none() -> None:
    """A batch that is repeated after a restart has no latest offset."""
    known = source(END, {"control": "somewhere"})
    assert controls(None) == []
    assert controls(report(source(END, None))) == []
    assert controls(report(known)) == [Path("somewhere")]
    assert controls(report(known, source(END, None))) == []


def test_a_source_of_another_kind_has_none() -> None:
    known = source(END, {"control": "somewhere"})
    assert controls(report(source(OTHER, OTHER), known)) == [Path("somewhere")]
