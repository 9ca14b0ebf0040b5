"""The settings of one instance of a stream application."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct, field

from kohort.errors import ConfigError
from kohort.streams.assignment.metadata import WORKERS_MAX
from kohort.streams.assignment.settings import LearnerSettings

_PORT_MAX = 65_535
_RANGES: Mapping[str, int] = {
    "workers": 1,
    "commit_interval_ms": 0,
    "lag_interval_ms": 10,
    "poll_ms": 1,
    "process_budget": 1,
    "restore_budget": 1,
    "checkpoint_interval_ms": 0,
    "purge_interval_ms": 1,
}


class StreamSettings(Struct, frozen=True, kw_only=True):
    """The settings of one instance.

    Attributes:
        learners: The group's settings for learners; the leader's settings apply to all members.
        client_tags: Where the instance runs (KIP-708).
        protocol_type: Protocol type of the group: "consumer", or "stream" as in the draft of
            KIP-429, which Kafka's tools for consumer groups do not show. Stop all instances before
            changing it.
        workers: Relative capacity of this instance: tasks are divided evenly among the workers of
            all instances. It starts no threads.
        commit_interval_ms: Milliseconds between commits; after a crash, at most this much work is
            repeated.
        lag_interval_ms: Milliseconds between measurements of the lags of learners and standbys.
        checkpoint_interval_ms: Milliseconds between checkpoints of learners and standbys.
        purge_interval_ms: Milliseconds between deletions of committed records in repartition
            topics.
        learner_records_per_s: Maximum number of changelog records per second that learners and
            standbys of this instance replay together; None: unlimited. Granted tasks are not
            limited.
        poll_ms: Milliseconds that a poll waits for records while no task has any.
        process_budget: Maximum number of records that a task processes in its turn.
        restore_budget: Maximum number of changelog records applied before other work has its turn.
        replication_factor: Replicas of created topics; -1: the broker's default.
        query_listen: The HTTP address for queries, as "host:port"; port 0 is a free port. None: no
            server. Needs the extra `ui`.
        query_url: The address at which other hosts reach it; None: the address it listens on.
        query_token_file: A file with the token that every query must carry; without it, only this
            machine may send queries.
    """

    learners: LearnerSettings = LearnerSettings()
    client_tags: Mapping[str, str] = field(default_factory=dict)
    protocol_type: Literal["consumer", "stream"] = "consumer"
    workers: int = 1
    commit_interval_ms: int = 1_000
    lag_interval_ms: int = 500
    checkpoint_interval_ms: int = 10_000
    purge_interval_ms: int = 30_000
    learner_records_per_s: int | None = None
    poll_ms: int = 100
    process_budget: int = 500
    restore_budget: int = 5_000
    replication_factor: int = -1
    query_listen: str | None = None
    query_url: str | None = None
    query_token_file: str | Path | None = None

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            ConfigError: A setting is out of range.
        """
        for name, least in _RANGES.items():
            if getattr(self, name) < least:
                raise ConfigError(f"{name} = {getattr(self, name)!r}, must be at least {least}")
        if self.protocol_type not in ("consumer", "stream"):
            raise ConfigError(
                f'protocol_type = {self.protocol_type!r}, must be "consumer" or "stream"'
            )
        if self.workers > WORKERS_MAX:
            raise ConfigError(f"workers = {self.workers!r}, must be at most {WORKERS_MAX}")
        if self.learner_records_per_s is not None and self.learner_records_per_s < 1:
            raise ConfigError(
                f"learner_records_per_s = {self.learner_records_per_s!r}, must be at least 1"
            )
        if self.query_listen is not None:
            address_of(self.query_listen)
        if self.query_url is not None:
            _check_url(self.query_url)


def address_of(listen: str) -> tuple[str, int]:
    """Return host and port of `query_listen`.

    Raises:
        ConfigError: It does not have this form.
    """
    host, _, port = listen.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > _PORT_MAX:
        raise ConfigError(f'query_listen={listen!r} is not "host:port", such as "127.0.0.1:8080"')
    return host.removeprefix("[").removesuffix("]"), int(port)


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query
    except ValueError:
        is_good = False
    if not is_good:
        raise ConfigError(f'query_url={url!r} is not an address such as "http://host:8080"')
