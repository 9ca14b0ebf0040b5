"""The options that make a query an operator of a consistent region, and those that it has not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from kohort.spark.options.values import OptionError, Values

if TYPE_CHECKING:
    from kohort.region.machines.records import RegionSettings
    from kohort.region.starts import StartPosition
    from kohort.spark.options.source import SourceOptions

Mode: TypeAlias = Literal["periodic", "operator-driven"]
Rebalance: TypeAlias = Literal["checkpoint", "reset"]

NAME = "consistentRegion"
REGION_OPTIONS = (
    NAME,
    "regionMode",
    "regionPeriod",
    "regionDrainTimeout",
    "regionResetTimeout",
    "regionMaxResets",
    "regionRebalance",
    "regionReplicationFactor",
)
MODES: tuple[Mode, ...] = ("periodic", "operator-driven")
REBALANCES: tuple[Rebalance, ...] = ("checkpoint", "reset")

# Options that would contradict the region.
_REFUSED = {
    "minPartitions": "a partition must not be split into tasks",
    "maxRecordsPerPartition": "a partition must not be split into tasks",
    "minOffsetsPerTrigger": "a checkpoint waits for the open batch, and a batch for nothing",
    "maxTriggerDelay": "a checkpoint waits for the open batch, and a batch for nothing",
    "positions": "the region alone holds positions",
    "checkpointLocation": "the region alone holds positions, not the checkpoint of Spark",
    "commitMetadata": "the region commits its checkpoints to the group, for display only",
    "exclusive": "other operators of the region are in the group",
    "startingOffsetsByTimestamp": "a start position is chosen for all partitions: "
    "startingOffsets=earliest, latest or committed, or startingTimestamp",
    "startingOffsetsByTimestampStrategy": "a partition without such a record starts at its end",
}


class RegionOptions(Struct, frozen=True, kw_only=True):
    """What a query says about its region.

    Attributes:
        name: Name of the region.
        mode: As in `RegionSettings`.
        period_ms: As in `RegionSettings`.
        drain_timeout_ms: As in `RegionSettings`; it should be longer than a batch takes.
        reset_timeout_ms: As in `RegionSettings`.
        max_resets: As in `RegionSettings`.
        rebalance: How partitions are handed over: with a checkpoint, or by a reset.
        replication_factor: Copies of the region's own topics; None for the broker's default.
    """

    name: str
    mode: Mode
    period_ms: int
    drain_timeout_ms: int
    reset_timeout_ms: int
    max_resets: int
    rebalance: Rebalance
    replication_factor: int | None

    def settings(self, group_id: str) -> RegionSettings:
        """Return what all processes of the region agree on."""
        from kohort.region.machines.records import RegionSettings

        return RegionSettings(
            group_id=group_id,
            mode=self.mode,
            period_ms=self.period_ms,
            drain_timeout_ms=self.drain_timeout_ms,
            reset_timeout_ms=self.reset_timeout_ms,
            max_resets=self.max_resets,
        )


def region_options(values: Values) -> RegionOptions | None:
    """Read the options of a region; None when there is none.

    Raises:
        OptionError: One makes no sense, or there are options of a region without its name.
    """
    from kohort.region.names import problem_of_region

    name = values.text(NAME)
    if name is None:
        if NAME in values:
            raise OptionError(f"{NAME} is empty: it is the name of a region")
        stray = [each for each in REGION_OPTIONS if each in values]
        if stray:
            raise OptionError(f"{stray[0]} needs {NAME}, the name of the region")
        return None
    problem = problem_of_region(name)
    if problem:
        raise OptionError(f"{NAME}: {problem}")
    return RegionOptions(
        name=name,
        mode=values.word("regionMode", MODES) or "periodic",
        period_ms=_duration_ms(values, "regionPeriod", 5_000),
        drain_timeout_ms=_duration_ms(values, "regionDrainTimeout", 10_000),
        reset_timeout_ms=_duration_ms(values, "regionResetTimeout", 30_000),
        max_resets=values.number("regionMaxResets") or 10,
        rebalance=values.word("regionRebalance", REBALANCES) or "checkpoint",
        replication_factor=values.number("regionReplicationFactor"),
    )


def _duration_ms(values: Values, name: str, default: int) -> int:
    found = values.duration_ms(name, default)
    if not 1 <= found < 2**31:
        raise OptionError(f"{name} must be from 1ms to 24d")
    return found


def check_region_options(options: SourceOptions) -> None:
    """Refuse options that a query in a region cannot have.

    Raises:
        OptionError: Names the option and the reason.
    """
    from kohort.region.names import problem_of

    if options.region is None:
        return
    if not options.settings.get("client.id"):
        raise OptionError(
            f"{NAME} needs kafka.client.id: it names the operator, and no other query or worker of "
            "the region may have the same name"
        )
    problem = problem_of(options.operator, options.group_id or "")
    if problem:
        raise OptionError(f"{NAME}: {problem} (kafka.client.id, kafka.group.id)")
    if options.group_mode != "member" or options.assigned:
        raise OptionError(f"{NAME} needs groupMode=member with subscribe or subscribePattern")
    if options.settings.get("allow.auto.create.topics", "false").lower() == "true":
        raise OptionError(
            f"kafka.allow.auto.create.topics cannot be combined with {NAME}: no client of a region "
            "creates topics, as a deleted source topic would seem to be empty"
        )
    for name, why in _REFUSED.items():
        if name in options.given:
            raise OptionError(f"{name} cannot be combined with {NAME}: {why}")
    if not (options.starting_offsets is None or isinstance(options.starting_offsets, str)):
        raise OptionError(
            f"startingOffsets by partition cannot be combined with {NAME}: "
            f"{_REFUSED['startingOffsetsByTimestamp']}"
        )


def start_position(options: SourceOptions) -> StartPosition:
    """Return where the region starts a partition, unless another operator has said so before."""
    from kohort.region.starts import EARLIEST, LATEST, StartPosition

    at = options.starting_timestamp
    if at is not None:
        return StartPosition({-1: LATEST, -2: EARLIEST}.get(at, ""), max(at, 0))
    start = options.starting_offsets
    return StartPosition(start if isinstance(start, str) else LATEST)
