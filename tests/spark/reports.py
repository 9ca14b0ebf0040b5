"""Progress reports as Spark makes them, for what reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

RUN = "0d2f7a52-5a0c-4b5b-9d5b-3a1f0b7a9c11"
QUERY = "4e6aa868-a2ad-48ba-998e-0b7f9ddcc4ad"


def manifest(**ranges: list[int]) -> dict[str, Any]:
    """A manifest of one topic: `p0=[0, 5]` is partition 0's range."""
    topics = {"flights": {name.removeprefix("p"): bounds for name, bounds in ranges.items()}}
    return {"epoch": 3, "nonce": "ab12", "operator": "north", "topics": topics}


def source(end: Mapping[str, Any], latest: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "description": "org.apache.spark...PythonMicroBatchStreamWithTriggerAvailableNow@431bd19",
        "startOffset": None,
        "endOffset": json.dumps(end),
        "latestOffset": "null" if latest is None else json.dumps(latest),
        "numInputRows": 8,
        "inputRowsPerSecond": 4.0,
        "processedRowsPerSecond": 5.3,
        "metrics": {},
    }


def report(*sources: Mapping[str, Any], batch: int = 7, **more: Any) -> StreamingQueryProgress:
    return StreamingQueryProgress.fromJson(
        {
            "id": QUERY,
            "runId": RUN,
            "name": "north",
            "timestamp": "2026-11-23T23:20:31.000Z",
            "batchId": batch,
            "batchDuration": 1500,
            "durationMs": {"triggerExecution": 1500, "addBatch": 1200},
            "eventTime": {},
            "stateOperators": [],
            "sources": list(sources),
            "sink": {"description": "ForeachBatchSink", "numOutputRows": -1},
            "observedMetrics": {},
            **more,
        }
    )
