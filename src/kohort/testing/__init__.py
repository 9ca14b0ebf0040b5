"""For your own tests: your listener or your assignor in simulated groups, under faults."""

from __future__ import annotations

from kohort.testing.calls import NotSimulatedError
from kohort.testing.consumer import SimulatedConsumer
from kohort.testing.simulated import SimulationFailedError, simulate

__all__ = ["NotSimulatedError", "SimulatedConsumer", "SimulationFailedError", "simulate"]
