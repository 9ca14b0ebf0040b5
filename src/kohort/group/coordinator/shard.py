"""One partition of `__consumer_offsets` and its groups: the coordinator's public interface.

A shell (the broker, the simulator, a test) drives it with one event at a time:

    effects = shard.decide(event, now)      # changes nothing
    log.append(effects.records)             # one batch; on failure drop the effects and the shard
    for record in effects.records:
        shard.apply(record)
    shard.install(effects.session)
    for reply in effects.replies:           # only now
        send(reply)

A new shard is down. `load_started`, `apply` for each record of the log and `load_finished` bring it
up; the event `Unload` takes it down, and it is then discarded.
"""

from __future__ import annotations

from kohort.group.coordinator.config import CoordinatorConfig
from kohort.group.coordinator.events import LoadFinished, LoadStarted, ShardEvent
from kohort.group.coordinator.lifecycle import SHARD
from kohort.group.coordinator.records import TransactionEnd
from kohort.group.coordinator.session import Lifecycle, ShardDecision
from kohort.group.coordinator.state import LogState, ShardSession
from kohort.group.effects import Effects
from kohort.group.events import GroupEvent
from kohort.wire.messages.group_records import GroupRecord

__all__ = ["Lifecycle", "Shard", "ShardSession"]


class Shard:
    """The coordinator of the groups in one partition.

    Attributes:
        config: Its settings.
        log: The fold of the records; a value, so a snapshot costs nothing.
        session: The session state, which is not in the log; a value.
    """

    def __init__(self, config: CoordinatorConfig) -> None:
        """Make a shard that is down and has no groups."""
        self.config = config
        self.log = LogState()
        self.session = ShardSession()

    @property
    def state(self) -> Lifecycle:
        """Return the state of the shard."""
        return self.session.lifecycle

    def load_started(self) -> None:
        """Begin to catch up; requests now get COORDINATOR_LOAD_IN_PROGRESS.

        Raises:
            LocalProtocolError: The shard is not down.
        """
        self.install(self.decide(LoadStarted(), 0).session)

    def apply(self, record: GroupRecord | TransactionEnd) -> None:
        """Apply a record to the log state; nothing else changes it, live or at reload.

        Args:
            record: The record.
        """
        self.log = self.log.apply(record)

    def load_finished(self, now: int) -> tuple[GroupEvent, ...]:
        """Become ready, and start the session of every member at `now` (C72).

        Returns:
            Events: a group that is now larger than allowed starts a rebalance.

        Raises:
            LocalProtocolError: The shard is not catching up.
        """
        effects = self.decide(LoadFinished(), now)
        assert not effects.records
        self.install(effects.session)
        return effects.observed

    def decide(self, event: ShardEvent, now: int) -> Effects[ShardSession]:
        """Work out the effects of an event; change nothing.

        Args:
            event: The event.
            now: Time in milliseconds, of a clock that never goes back.
        """
        decision = ShardDecision(self.config, self.log, self.session, now)
        SHARD.run(decision, type(event), event)
        return decision.effects()  # type: ignore[return-value]  # its session is a later value of ours

    def install(self, session: ShardSession) -> None:
        """Install the session state of effects whose records are in the log and applied."""
        self.session = session

    def next_deadline(self) -> int | None:
        """Return the time of the next `Tick` that has an effect; None: there is none."""
        return self.session.deadlines.earliest
