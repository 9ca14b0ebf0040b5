"""Every order of events of a small region, on the real machines."""

from __future__ import annotations

from tests.simulation.exploring.regions.model import KINDS, SmallRegion

__all__ = ["KINDS", "SmallRegion"]
