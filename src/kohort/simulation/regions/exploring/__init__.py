"""Every order of events of a small region, over the machines that run everywhere."""

from __future__ import annotations

from kohort.simulation.regions.exploring.model import KINDS, SmallRegion

__all__ = ["KINDS", "SmallRegion"]
