"""Lets Spark find the data source by its name: it looks into every package `pyspark_*`."""

from __future__ import annotations

from kohort.spark import KohortDataSource as DefaultSource

__all__ = ["DefaultSource"]
