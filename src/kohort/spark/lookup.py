"""What the source asks the brokers about partitions and offsets, on Spark's side of the process."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal

from kohort.spark.manifest import Range
from kohort.spark.options import EARLIEST, LATEST, OptionError, Offsets, SourceOptions
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from typing import Self

# Spark asks about every 12 ms when a query is idle; the brokers are not asked as often.
ENDS_MAX_AGE_S = 0.1
