"""Tools for tests: a Kafka with faults, and groups that simulate your listener or assignor.

`kohort.testing.plugin` provides pytest fixtures, `kohort.testing.strategies` Hypothesis strategies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.lazy import importer

if TYPE_CHECKING:
    from kohort.testing.async_harness import AsyncKafkaHarness
    from kohort.testing.consumer import SimulatedConsumer
    from kohort.testing.harness import KafkaHarness
    from kohort.testing.harness_clients import HarnessError
    from kohort.testing.positions import NotSimulatedError
    from kohort.testing.process import KafkaProcess
    from kohort.testing.simulated import SimulationFailedError, simulate

__all__ = [
    "AsyncKafkaHarness",
    "HarnessError",
    "KafkaHarness",
    "KafkaProcess",
    "NotSimulatedError",
    "SimulatedConsumer",
    "SimulationFailedError",
    "simulate",
]

if not TYPE_CHECKING:  # a checker reads the imports above, and reports other names
    __getattr__, __dir__ = importer(
        __name__,
        __all__,
        {
            "AsyncKafkaHarness": ".async_harness",
            "HarnessError": ".harness_clients",
            "KafkaHarness": ".harness",
            "KafkaProcess": ".process",
            "NotSimulatedError": ".positions",
            "SimulatedConsumer": ".consumer",
            "SimulationFailedError": ".simulated",
            "simulate": ".simulated",
        },
    )
