"""What can go wrong with a region, by name."""

from __future__ import annotations

from kohort.errors import KohortError


class RegionError(KohortError):
    """Base of the errors of a region."""


class RegionRecordError(RegionError):
    """Bytes of the control topic are no record of a region; every reader passes them over."""


class NewerRecordError(RegionRecordError):
    """A record was written by a newer version, and a reader that passed it over would be wrong."""


class RegionLogError(RegionError):
    """The control topic cannot be folded."""


class LogGapError(RegionLogError):
    """Records are missing that no snapshot covers: deleted by somebody, or by retention."""


class ForkedSnapshotError(RegionLogError):
    """A snapshot differs from what the records before it fold to."""


class OperatorFencedError(RegionError):
    """A newer process has the operator's name, or the controller evicted this one."""


class DifferentRegionError(RegionError):
    """The control topic belongs to a region of another group or with other settings."""


class ControlTopicError(RegionError):
    """The control topic is missing, gone, or cannot hold a region."""


class StateLimitError(RegionError):
    """The state of partitions is larger than a region takes; learner tasks are for such state."""


class RegionStateError(RegionError):
    """The state of a partition cannot be read back."""


class SourceError(RegionError):
    """Records that the region has not read yet are gone: deleted, or their topic was."""


class SinkError(RegionError):
    """Output is missing, damaged, or somebody else writes where the region does."""


class RegionQueryError(RegionError):
    """A Spark query cannot be an operator of a region; says what to change."""


class RegionOrderError(RegionError):
    """Records of a partition came out of order, in several tasks, or are not of the batch."""


class FunctionError(RegionError):
    """The function of the application raised; the cause says what."""
