"""Parse arguments of `kohort groups reset-offsets`: partitions, times, and files of offsets.

The forms are those of `kafka-consumer-groups --reset-offsets`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from kohort.errors import ConfigError
from kohort.types import TopicPartition

_DURATION: Final = re.compile(
    r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)
_NUMBER: Final = re.compile(r"\d{1,10}")
_OFFSET: Final = re.compile(r"\d{1,19}")
_LARGEST_FILE: Final = 64 * 1024 * 1024


def parse_topic(text: str) -> tuple[str, tuple[int, ...] | None]:
    """Return topic and partitions of `topic` or `topic:0,1`; None for all of them.

    Raises:
        ValueError: The text is neither.
    """
    topic, found, numbers = text.partition(":")
    if not found:
        return topic, None
    parts = [each.strip() for each in numbers.split(",")]
    if not topic or not all(_NUMBER.fullmatch(each) for each in parts):
        raise ValueError(f"{text!r} is neither TOPIC nor TOPIC:PARTITION,PARTITION")
    return topic, tuple(int(each) for each in parts)


def parse_time(text: str) -> datetime:
    """Parse an ISO 8601 time, UTC without a zone, as in Kafka's tools.

    Raises:
        ValueError: The text is invalid.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not an ISO 8601 time such as 2026-02-28T10:00:00 (UTC) or"
            " 2026-02-28T10:00:00+01:00"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def parse_duration(text: str) -> timedelta:
    """Parse an ISO 8601 duration: PnDTnHnMnS.

    Raises:
        ValueError: The text is invalid.
    """
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        raise ValueError(f"{text!r} is not an ISO 8601 duration such as P7D, PT36H or P1DT12H30M")
    days, hours, minutes, seconds = (float(each or 0) for each in found.groups())
    try:
        return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    except OverflowError:
        raise ValueError(f"{text!r} is too long") from None


def read_offsets(path: Path, group: str) -> dict[TopicPartition, int]:
    """Return the offsets of a file with lines `topic,partition,offset`, optionally after a group.

    Args:
        path: The file, as `--export` writes it.
        group: The required group of lines that name one.

    Raises:
        ConfigError: It cannot be read, or a line is malformed; names the line.
    """
    found: dict[TopicPartition, int] = {}
    for number, cells in _rows(path):
        where = f"{path}, line {number}"
        if len(cells) == 4:
            if cells[0] != group:
                raise ConfigError(f"{where}: is about group {cells[0]!r}, not {group!r}")
            cells = cells[1:]
        if len(cells) != 3 or not _NUMBER.fullmatch(cells[1]) or not _OFFSET.fullmatch(cells[2]):
            raise ConfigError(f"{where}: must be topic,partition,offset, or group before these")
        partition = TopicPartition(cells[0], int(cells[1]))
        if partition in found:
            raise ConfigError(f"{where}: {partition.topic}-{partition.partition} is listed twice")
        found[partition] = int(cells[2])
    if not found:
        raise ConfigError(f"{path} has no offsets")
    return found


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        if path.is_file() and path.stat().st_size > _LARGEST_FILE:
            raise ConfigError(f"{path} is larger than {_LARGEST_FILE} bytes")
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{path}: {why}") from None
    for number, cells in enumerate(csv.reader(lines), 1):
        stripped = [cell.strip() for cell in cells]
        if any(stripped):
            yield number, stripped


def as_csv(offsets: Mapping[TopicPartition, int]) -> str:
    """Return one group's offsets in the format of `--export` of Kafka's tool."""
    rows = sorted(offsets.items())
    return "".join(f"{topic},{number},{offset}\n" for (topic, number), offset in rows)


def shifted(
    partitions: Iterable[TopicPartition], committed: Mapping[TopicPartition, int], by: int
) -> dict[TopicPartition, int]:
    """Return committed offsets moved forward, or back if negative, even below 0.

    Raises:
        ConfigError: A partition has no committed offset.
    """
    wanted = sorted(partitions)
    missing = [f"{each.topic}-{each.partition}" for each in wanted if each not in committed]
    if missing:
        raise ConfigError(
            f"nothing to shift: no offset is committed for {_shown(missing)}; name the other"
            " partitions with --topic, or use --to-earliest, --to-latest or --to-offset"
        )
    return {each: min(committed[each] + by, 2**63 - 1) for each in wanted}


def _shown(names: Sequence[str], most: int = 10) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
