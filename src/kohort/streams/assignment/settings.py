"""A group's settings for learners; the leader's settings apply to all members."""

from __future__ import annotations

from enum import IntEnum
from typing import Literal, TypeAlias

from msgspec import Struct

from kohort.errors import ConfigError

Handover: TypeAlias = Literal["until-grant", "draft"]

_HANDOVERS = ("until-grant", "draft")
TAGS_MAX = 5
TAG_KEY_MAX = 20
TAG_VALUE_MAX = 30
"""Limits of KIP-708 on client tags."""


class Rollout(IntEnum):
    """The stages of the draft of KIP-429; each includes the earlier ones."""

    NEWCOMERS = 1
    """Only members that were not in the last generation learn."""
    SCALE_DOWN = 2
    """Members that stay learn the tasks of leaving members."""
    EAGER = 3
    """A learner may ask for a rebalance with each task that it has learned."""
    BALANCED = 4
    """All members are balanced."""


class LearnerSettings(Struct, frozen=True, kw_only=True):
    """Settings that control how tasks move.

    Attributes:
        handover: "until-grant": an owner processes a task until it is granted to another member.
            "draft": in every rebalance, it gives up tasks that others learn before it joins.
        rollout: How much of the draft applies.
        acceptable_recovery_lag: The maximum lag in offsets at which a learner is ready (KIP-441).
        max_warmup_learners: The maximum number of tasks learned at once in the group, not counting
            learners that were standbys; None, and below `Rollout.BALANCED`: unlimited.
        num_standby_replicas: Number of standbys of each stateful task.
        stream_imbalance_percentage: How far a member's number of tasks may deviate from the mean.
            The nearest integers below and above the mean are always allowed.
        learner_partial_rebalance: Whether a learner asks for a rebalance after each task it has
            learned, or only after all. Applies from `Rollout.EAGER` onwards.
        scale_down_timeout_ms: Milliseconds after which a leaving member must go, even if its tasks
            have not been learned; None: never.
        rack_aware_assignment_tags: Client tags in which a task's replicas should differ (KIP-708).
    """

    handover: Handover = "until-grant"
    rollout: Rollout = Rollout.BALANCED
    acceptable_recovery_lag: int = 10_000
    max_warmup_learners: int | None = 2
    num_standby_replicas: int = 0
    stream_imbalance_percentage: float = 0.2
    learner_partial_rebalance: bool = True
    scale_down_timeout_ms: int | None = None
    rack_aware_assignment_tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            ConfigError: A setting is out of range.
        """
        warmups, timeout = self.max_warmup_learners, self.scale_down_timeout_ms
        tags = self.rack_aware_assignment_tags
        checks = {
            "handover": (self.handover in _HANDOVERS, '"until-grant" or "draft"'),
            "rollout": (self.rollout in set(Rollout), "a Rollout"),
            "acceptable_recovery_lag": (self.acceptable_recovery_lag >= 0, "at least 0"),
            "max_warmup_learners": (warmups is None or warmups >= 1, "at least 1, or None"),
            "num_standby_replicas": (self.num_standby_replicas >= 0, "at least 0"),
            "stream_imbalance_percentage": (
                0 <= self.stream_imbalance_percentage <= 1,
                "from 0 to 1 (0.2 is 20 %)",
            ),
            "scale_down_timeout_ms": (timeout is None or timeout >= 0, "at least 0, or None"),
            "rack_aware_assignment_tags": (len(tags) <= TAGS_MAX, f"at most {TAGS_MAX} tags"),
        }
        for name, (is_right, must) in checks.items():
            if not is_right:
                raise ConfigError(f"{name} = {getattr(self, name)!r}, must be {must}")

    @property
    def budget(self) -> int | None:
        """Maximum number of tasks learned at once; None: unlimited."""
        return self.max_warmup_learners if self.rollout >= Rollout.BALANCED else None

    @property
    def percentage(self) -> float:
        """The allowed imbalance, which is fixed below `Rollout.BALANCED`."""
        return self.stream_imbalance_percentage if self.rollout >= Rollout.BALANCED else 0.0

    @property
    def is_partial(self) -> bool:
        """Whether a learner asks for a rebalance after each task."""
        return self.learner_partial_rebalance and self.rollout >= Rollout.EAGER
