"""Determines which regions an output belongs to, before a region is created.

A new region reads its topics from the start position. If its output already had rows of another
region that reads the same topics, they would all be duplicated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from kohort.region.errors import SinkError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from kohort.region.sinks.sink import Publisher

# In a Delta table, the names of a region's application transactions start with this.
PREFIX = "kohort-region/"
_LOG = "_delta_log"
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*(parquet|json)")


def regions_of(publisher: Publisher) -> tuple[Collection[str], str]:
    """Return the names of the regions whose output a publisher has, and the output's location.

    Args:
        publisher: An unopened publisher; it may have a method `regions` that returns both.
    """
    regions: Callable[[], tuple[Collection[str], str]] | None = getattr(publisher, "regions", None)
    return ((), "") if regions is None else regions()


def check_unused(publisher: Publisher, region: str) -> None:
    """Check that an output has nothing of any region, before a region is created.

    Args:
        publisher: Its output is checked.
        region: The region that does not exist yet.

    Raises:
        SinkError: It has output of a region; the message names the region and the remedy.
    """
    found, place = regions_of(publisher)
    if region in found:
        raise lost(place, region)
    if found:
        raise others(place, found, region)


def lost(place: object, region: str) -> SinkError:
    """Return the error for output of a region that has lost its control topic."""
    return SinkError(
        f"{place} holds the output of region {region!r} with another control topic, so the "
        "numbers of the checkpoints would be the same. If that topic was deleted, the state and "
        "positions of the region are gone with it: start a region of another name, with an output "
        "of its own"
    )


def others(place: object, found: Collection[str], region: str) -> SinkError:
    """Return the error for output of other regions.

    Args:
        place: The output's location.
        found: Names of the other regions.
        region: Name of the region that is refused.
    """
    names = " and ".join(map(repr, sorted(found)))
    return SinkError(
        f"{place} holds the output of region {names}, and this is region {region!r}: records "
        "that both read would be there twice. Give it the name of that region, or an output of its "
        "own"
    )


def regions_in(table: FileSystem) -> set[str]:
    """Return the names of the regions that have published in a Delta table.

    deltalake finds a transaction only by its full name. So this reads the newest checkpoint of the
    table's log and the commits after it.

    Args:
        table: A file system whose root is the table, which may not exist.
    """
    return {name.removeprefix(PREFIX).split("@")[0] for name in _names(table) if PREFIX in name}


def _names(table: FileSystem) -> Iterator[str]:
    from pyarrow.fs import FileSelector

    listed = table.get_file_info(FileSelector(_LOG, allow_not_found=True))
    files = [each.base_name for each in listed]
    checkpoints = [(int(known[1]), name) for name in files if (known := _CHECKPOINT.match(name))]
    newest = max(checkpoints, default=(-1, ""))[0]
    commits = [(int(known[1]), name) for name in files if (known := _COMMIT.fullmatch(name))]
    for name in (name for version, name in checkpoints if version == newest):
        is_text = name.endswith(".json")
        yield from (_in_lines if is_text else _in_columns)(table, f"{_LOG}/{name}")
    for name in (name for version, name in commits if version > newest):
        yield from _in_lines(table, f"{_LOG}/{name}")


def _in_columns(table: FileSystem, name: str) -> Iterator[str]:
    import pyarrow.parquet as pq

    with table.open_input_file(name) as source:
        read = pq.ParquetFile(source).read(columns=["txn"])
    if "txn" in read.column_names:
        for each in read["txn"].to_pylist():
            yield (each or {}).get("appId") or ""


def _in_lines(table: FileSystem, name: str) -> Iterator[str]:
    with table.open_input_file(name) as source:
        lines = source.read().splitlines()
    for line in lines:
        if b'"txn"' in line:
            yield json.loads(line).get("txn", {}).get("appId", "")
