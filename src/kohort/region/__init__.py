"""Consistent regions: operators that drain, checkpoint and reset as one (decision 0026).

The state of a region is the fold of its control topic. `kohort.region.machines` is pure: it has the
records and their encoding, the fold, a reader that knows when its state can be trusted, and the
machines of the controller and of an operator. The other modules are the shell: they handle Kafka,
threads and files, and decide nothing.

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
    from kohort.region.callable_sink import CallableSink
    from kohort.region.consumer import AsyncRegionConsumer, RegionConsumer
    from kohort.region.delta import DeltaSink
    from kohort.region.machines.records import OperatorId, RegionPartition
    from kohort.region.metrics import RegionMetrics
    from kohort.region.sinks import (
        CutWriter,
        ParquetDirectory,
        RegionSink,
        read_directory,
    )
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
    "DeltaSink": "kohort.region.delta",
    "OperatorId": "kohort.region.machines.records",
    "RegionPartition": "kohort.region.machines.records",
    "RegionMetrics": "kohort.region.metrics",
    "CallableSink": "kohort.region.callable_sink",
    "CutWriter": "kohort.region.sinks",
    "ParquetDirectory": "kohort.region.sinks",
    "RegionSink": "kohort.region.sinks",
    "read_directory": "kohort.region.sinks",
    "KeyedState": "kohort.region.states",
}
__getattr__ = importer(__name__, _HOMES)
