"""The options that make a query an operator of a consistent region."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from kohort.spark.options.values import Offsets, OptionError, Values

if TYPE_CHECKING:
    from kohort.region.machines.records import RegionSettings
    from kohort.region.starts import StartPosition

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


class RegionOptions(Struct, frozen=True, kw_only=True):
    """A query's options for its region.

    Attributes:
        name: Name of the region.
        mode: As in `RegionSettings`.
        period_ms: As in `RegionSettings`.
        drain_timeout_ms: As in `RegionSettings`; it should be longer than a batch.
        reset_timeout_ms: As in `RegionSettings`.
        max_resets: As in `RegionSettings`.
        rebalance: How partitions are handed over: with a checkpoint, or by a reset.
        replication_factor: Replicas of the region's own topics; None: the broker's default.
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
        """Return the settings shared by all processes of the region."""
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
    """Parse the options of a region; return None if there are none.

    Raises:
        OptionError: An option is invalid, or the region's name is missing.
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
        mode=values.choice("regionMode", MODES) or "periodic",
        period_ms=_duration_ms(values, "regionPeriod", 5_000),
        drain_timeout_ms=_duration_ms(values, "regionDrainTimeout", 10_000),
        reset_timeout_ms=_duration_ms(values, "regionResetTimeout", 30_000),
        max_resets=values.number("regionMaxResets") or 10,
        rebalance=values.choice("regionRebalance", REBALANCES) or "checkpoint",
        replication_factor=values.number("regionReplicationFactor"),
    )


def _duration_ms(values: Values, name: str, default: int) -> int:
    found = values.duration_ms(name, default)
    if not 1 <= found < 2**31:
        raise OptionError(f"{name} must be from 1ms to 24d")
    return found


def start_position(timestamp: int | None, offsets: Offsets | None) -> StartPosition:
    """Return where the region starts a partition, unless another operator has already set it.

    Args:
        timestamp: The option `startingTimestamp` in milliseconds; None if not given.
        offsets: The option `startingOffsets`; None if not given.
    """
    from kohort.region.starts import EARLIEST, LATEST, StartPosition

    if timestamp is not None:
        return StartPosition({-1: LATEST, -2: EARLIEST}.get(timestamp, ""), max(timestamp, 0))
    return StartPosition(offsets if isinstance(offsets, str) else LATEST)
