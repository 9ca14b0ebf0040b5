"""Kafka consumer groups for Python and Spark."""

from __future__ import annotations

__version__ = "0.1.0"
