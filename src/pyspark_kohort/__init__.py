"""Lets Spark find the data source ``kohort`` by its name: it imports every ``pyspark_*`` package."""

from kohort.spark import KohortDataSource as DefaultSource

__all__ = ["DefaultSource"]
