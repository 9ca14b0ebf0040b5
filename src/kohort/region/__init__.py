"""Consistent regions: operators that drain, checkpoint and reset as one (decision 0026).

The state of a region is the fold of its control topic. `kohort.region.machines` is pure: it
contains the records and their encoding, the fold, a reader that knows when its state can be
trusted, and the state machines of the controller and of an operator. The other modules are the
shell: they handle Kafka, threads and files, and decide nothing.

Stability: experimental.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.lazy import importer
from kohort.region.errors import (
    ControlTopicError,
    DifferentRegionError,
    FunctionError,
    OperatorFencedError,
    RegionError,
    RegionLogError,
    RegionOrderError,
    RegionQueryError,
    RegionStateError,
    SinkError,
    SourceError,
    StateLimitError,
)

if TYPE_CHECKING:
    from kohort.region.consumer import AsyncRegionConsumer, RegionConsumer
    from kohort.region.machines.records import OperatorId, RegionPartition
    from kohort.region.metrics import RegionMetrics
    from kohort.region.sinks.callable import CallableSink
    from kohort.region.sinks.delta import DeltaSink
    from kohort.region.sinks.directory import ParquetDirectory, read_directory
    from kohort.region.sinks.sink import CutWriter, RegionSink
    from kohort.region.states import KeyedState

__all__ = [
    "AsyncRegionConsumer",
    "CallableSink",
    "ControlTopicError",
    "CutWriter",
    "DeltaSink",
    "DifferentRegionError",
    "FunctionError",
    "KeyedState",
    "OperatorFencedError",
    "OperatorId",
    "ParquetDirectory",
    "RegionConsumer",
    "RegionError",
    "RegionLogError",
    "RegionMetrics",
    "RegionOrderError",
    "RegionPartition",
    "RegionQueryError",
    "RegionSink",
    "RegionStateError",
    "SinkError",
    "SourceError",
    "StateLimitError",
    "read_directory",
]

_HOMES = {
    "AsyncRegionConsumer": "kohort.region.consumer",
    "RegionConsumer": "kohort.region.consumer",
    "DeltaSink": "kohort.region.sinks.delta",
    "OperatorId": "kohort.region.machines.records",
    "RegionPartition": "kohort.region.machines.records",
    "RegionMetrics": "kohort.region.metrics",
    "CallableSink": "kohort.region.sinks.callable",
    "CutWriter": "kohort.region.sinks.sink",
    "ParquetDirectory": "kohort.region.sinks.directory",
    "RegionSink": "kohort.region.sinks.sink",
    "read_directory": "kohort.region.sinks.directory",
    "KeyedState": "kohort.region.states",
}
if not TYPE_CHECKING:  # a checker reads the imports above, and reports other names
    __getattr__, __dir__ = importer(__name__, __all__, _HOMES)
