"""The errors of a region."""

from __future__ import annotations

from kohort.errors import KohortError


class RegionError(KohortError):
    """Base class of the errors of a region."""


class RegionRecordError(RegionError):
    """Bytes in the control topic are not a record of a region; every reader ignores them."""


class NewerRecordError(RegionRecordError):
    """A newer version wrote a record that a reader must not ignore."""


class RegionLogError(RegionError):
    """The control topic cannot be folded."""


class LogGapError(RegionLogError):
    """Records that no snapshot covers are missing: they were deleted by hand or by retention."""


class ForkedSnapshotError(RegionLogError):
    """A snapshot differs from the fold of the records before it."""


class OperatorFencedError(RegionError):
    """A newer process uses the operator's name, or the controller evicted this one."""


class DifferentRegionError(RegionError):
    """The control topic belongs to a region of another group or with other settings."""


class ControlTopicError(RegionError):
    """The control topic is missing, was deleted, or is unsuitable for a region."""


class StateLimitError(RegionError):
    """The state of partitions is too large for a region; use learner tasks instead."""


class RegionStateError(RegionError):
    """The stored state of a partition cannot be read."""


class SourceError(RegionError):
    """Records, or a whole topic, were deleted before the region read them."""


class SinkError(RegionError):
    """Output is missing or damaged, or another writer uses the region's output location."""


class RegionQueryError(RegionError):
    """A Spark query cannot be an operator of a region; the message gives the remedy."""


class RegionOrderError(RegionError):
    """Records of a partition arrived out of order, in several tasks, or from another batch."""


class FunctionError(RegionError):
    """The application's function raised an exception, which is `__cause__`."""
