"""The progress of a query: Spark's progress reports of its kohort sources."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from msgspec import Struct

from kohort.spark.checkpoint.manifest import Manifest, ManifestError, OffsetJson
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery


class SourceProgress(TypedDict):
    """The progress of one source of a query.

    The first three are the metrics of Spark's own Kafka source, as numbers. They are None until
    Spark has requested the ends of the source's partitions, for instance while it replays a batch
    after a restart.
    """

    minOffsetsBehindLatest: int | None
    maxOffsetsBehindLatest: int | None
    avgOffsetsBehindLatest: float | None
    offsetsBehindLatest: dict[str, dict[int, int]]
    batchId: int
    operator: str
    memberId: str | None
    epoch: int
    owned: dict[str, list[int]]
    rebalanceWaitMs: int | None


class SourceReport(Struct, frozen=True):
    """One progress report's entry for one kohort source.

    Attributes:
        end: The batch's manifest as the source passed it to Spark.
        manifest: The parsed manifest.
        ends: Ends of the owned partitions when the batch was planned; None if it was replayed.
        control: The directory of the source's process; None if the batch was replayed.
        member_id: The member's id in the group; None if the source has not reported it.
        epoch: Generation or epoch of the group.
        rebalance_wait_ms: Total time that triggers have waited for rebalances; None if not
            reported.
    """

    end: OffsetJson
    manifest: Manifest
    ends: Mapping[TopicPartition, int] | None
    control: Path | None
    member_id: str | None
    epoch: int
    rebalance_wait_ms: int | None

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset to read of each partition of the batch."""
        return {partition: end for partition, (_, end) in self.manifest.ranges.items()}

    @property
    def lags(self) -> dict[TopicPartition, int]:
        """Records between the batch and the ends of its partitions, if both are known."""
        positions = self.positions
        return {
            partition: max(end - positions[partition], 0)
            for partition, end in (self.ends or {}).items()
            if partition in positions
        }


def progress(query: StreamingQuery) -> list[SourceProgress]:
    """Return the query's lag behind the ends of the partitions that it owns.

    Args:
        query: A running or ended query, of this process or of Spark Connect.

    Returns:
        One entry for each kohort source of the query, as of its last batch; none before the first
        batch is finished.
    """
    last = query.lastProgress
    if last is None:
        return []
    return [_shown(report, last.batchId) for report in source_reports(last)]


def source_reports(reported: StreamingQueryProgress) -> list[SourceReport]:
    """Return a progress report's entries for kohort sources, without other sources.

    Args:
        reported: The report, from Spark's listener or `query.lastProgress`.
    """
    found = []
    for source in reported.sources:
        end = _parsed(source.endOffset)
        try:
            manifest = Manifest.from_json(end)
        except ManifestError:
            continue
        found.append(_report(end, manifest, _parsed(source.latestOffset)))
    return found


def _report(end: OffsetJson, manifest: Manifest, said: OffsetJson) -> SourceReport:
    control, member = said.get("control"), said.get("member")
    epoch, waited = said.get("epoch"), said.get("rebalanceWaitMs")
    return SourceReport(
        end=end,
        manifest=manifest,
        ends=_ends(said.get("topics")),
        control=Path(control) if isinstance(control, str) else None,
        member_id=member if isinstance(member, str) else None,
        epoch=epoch if isinstance(epoch, int) else manifest.epoch,
        rebalance_wait_ms=waited if isinstance(waited, int) else None,
    )


def _shown(report: SourceReport, batch_id: int) -> SourceProgress:
    lags = report.lags
    behind: dict[str, dict[int, int]] = {}
    for (topic, partition), lag in sorted(lags.items()):
        behind.setdefault(topic, {})[partition] = lag
    return {
        "minOffsetsBehindLatest": min(lags.values(), default=None),
        "maxOffsetsBehindLatest": max(lags.values(), default=None),
        "avgOffsetsBehindLatest": sum(lags.values()) / len(lags) if lags else None,
        "offsetsBehindLatest": behind,
        "batchId": batch_id,
        "operator": report.manifest.operator,
        "memberId": report.member_id,
        "epoch": report.epoch,
        "owned": _by_topic(report.positions if report.ends is None else report.ends),
        "rebalanceWaitMs": report.rebalance_wait_ms,
    }


def _by_topic(partitions: Mapping[TopicPartition, int]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return topics


def _parsed(text: str | None) -> OffsetJson:
    """Parse an offset; PySpark writes "null" for a missing one."""
    try:
        read = json.loads(text or "null")
    except ValueError:  # another source, whose offsets may be anything
        return {}
    return read if isinstance(read, dict) else {}


def _ends(topics: object) -> dict[TopicPartition, int] | None:
    if not isinstance(topics, dict):
        return None
    return {
        TopicPartition(topic, int(partition)): int(end)
        for topic, partitions in topics.items()
        for partition, end in partitions.items()
    }
