"""The settings and the membership of an instance's consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kohort.client import AsyncConsumer
from kohort.client.consumer.aio import internals_of
from kohort.errors import ConfigError
from kohort.group.member.classic.session import ClassicMemberState
from kohort.region.settings import ClientSettings
from kohort.streams.assignor import LearnerAssignor
from kohort.streams.runtime.interface import Application

if TYPE_CHECKING:
    from kohort.client.config.settings import ConsumerSettings

# Settings that are reserved for the runtime.
_OURS = frozenset(
    {
        "group_id",
        "group_protocol",
        "partition_assignment_strategy",
        "enable_auto_commit",
        "enable_auto_offset_store",
        "allow_auto_create_topics",
        "key_deserializer",
        "value_deserializer",
    }
)


def check_clients(application: Application, clients: ClientSettings) -> None:
    """Check a user's settings for the clients of an application.

    Raises:
        ConfigError: A setting is reserved for the runtime, or would lose records of internal
            topics.
    """
    ours = sorted(_OURS.intersection(clients))
    if ours:
        raise ConfigError(f"a stream application sets {', '.join(ours)} itself")
    reset = clients.get("auto_offset_reset", "earliest")
    if application.repartitions and reset != "earliest":
        raise ConfigError(
            f"auto_offset_reset={reset!r}: {application.name} has repartition topics, and the"
            " first records of those would be lost; it must be 'earliest'"
        )


def ask_to_rebalance(consumer: AsyncConsumer, reason: str) -> None:
    """Ask for a rebalance, unless the member is already joining the next generation.

    Its claim in that generation has the same effect. A request would cause another rebalance.
    """
    membership = internals_of(consumer).core.membership
    if (
        membership is None
        or membership.member.session.state is not ClassicMemberState.PREPARING_REBALANCE
    ):
        consumer.enforce_rebalance(reason)


def is_session_over(consumer: AsyncConsumer) -> bool:
    """Whether others may own the tasks: the session timeout has passed without an answer."""
    membership = internals_of(consumer).core.membership
    return membership is not None and membership.is_session_over


def is_out_for_good(consumer: AsyncConsumer) -> bool:
    """Whether the member has given up, so that each further poll raises the same error."""
    membership = internals_of(consumer).core.membership
    return membership is not None and membership.fatal is not None


def member_settings(
    application: Application, clients: ClientSettings, assignor: LearnerAssignor
) -> ConsumerSettings:
    """Return the settings of the member's consumer."""
    settings = {
        "auto_offset_reset": "earliest",
        **clients,
        "group_id": application.name,
        "group_protocol": "classic",
        "partition_assignment_strategy": assignor,
        "enable_auto_commit": False,
        "allow_auto_create_topics": False,
    }
    return cast("ConsumerSettings", settings)
