"""Passes reports from the worker thread to the event loop of the operator."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import TypeAlias

from kohort.region.machines.events import Delivered
from kohort.region.machines.records import RegionPartition
from kohort.region.work import Report

# Of several consecutive deliveries for one `Read`, only the last one counts.
_Run: TypeAlias = dict[tuple[RegionPartition, int], Delivered]


class Reports:
    """Delivers reports in order, and wakes the loop once for all that have arrived meanwhile.

    A thousand batches are delivered per second; waking the loop for each would take a tenth of the
    time.

    Args:
        loop: The loop that calls `hear`.
        hear: Called with each report.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, hear: Callable[[Report | Exception], None]
    ) -> None:
        self._loop = loop
        self._hear = hear
        self._lock = threading.Lock()
        self._waiting: list[_Run | Report | Exception] = []

    def put(self, report: Report | Exception) -> None:
        """Add a report; may be called from any thread.

        Raises:
            RuntimeError: The loop is closed.
        """
        with self._lock:
            is_first = not self._waiting
            if not isinstance(report, Delivered):
                self._waiting.append(report)
            elif self._waiting and isinstance(run := self._waiting[-1], dict):
                run[report.partition, report.read] = report
            else:
                self._waiting.append({(report.partition, report.read): report})
        if is_first:
            self._loop.call_soon_threadsafe(self._hear_all)

    def _hear_all(self) -> None:
        for report in self._taken():
            self._hear(report)

    def _taken(self) -> Iterator[Report | Exception]:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for each in waiting:
            if isinstance(each, dict):
                yield from each.values()
            else:
                yield each
