"""The whole state of a shard, with named access to each kind's part.

The kinds themselves use `GroupLog` and `SessionState`, in which each can read only its own part.
"""

from __future__ import annotations

from immutables import Map

from kohort.group.coordinator.classic.fold import STORED as CLASSIC_STORED
from kohort.group.coordinator.classic.fold import StoredGroup
from kohort.group.coordinator.classic.group import LIVE as CLASSIC_LIVE
from kohort.group.coordinator.classic.group import ClassicGroup
from kohort.group.coordinator.classic.kind import find
from kohort.group.coordinator.consumer.configs import CONFIGS, GroupConfigs
from kohort.group.coordinator.consumer.state.group import ConsumerGroup
from kohort.group.coordinator.consumer.state.log_records import GROUPS
from kohort.group.coordinator.consumer.state.session import SESSION, ConsumerSession
from kohort.group.coordinator.draft.group import LIVE as DRAFT_LIVE
from kohort.group.coordinator.draft.group import STORED as DRAFT_STORED
from kohort.group.coordinator.draft.group import DraftGroup, StoredDraftGroup
from kohort.group.coordinator.kinds import KINDS
from kohort.group.coordinator.records import GroupLog, TransactionEnd, fold_end
from kohort.group.coordinator.session import SessionState
from kohort.wire.messages.group_records import GroupRecord


class LogState(GroupLog, frozen=True):
    """The fold of the log.

    `apply` is its only writer, while the coordinator runs and while it loads, so a reloaded
    coordinator has the same log state as the one that wrote the log.
    """

    @property
    def groups(self) -> Map[str, StoredGroup]:
        """Classic groups as last written."""
        return CLASSIC_STORED.of(self)

    @property
    def draft_groups(self) -> Map[str, StoredDraftGroup]:
        """Groups of the draft protocol as last written."""
        return DRAFT_STORED.of(self)

    @property
    def consumer_groups(self) -> Map[str, ConsumerGroup]:
        """Groups of the consumer protocol (KIP-848)."""
        return GROUPS.of(self)

    @property
    def group_configs(self) -> Map[str, GroupConfigs]:
        """Return the groups' own settings; the groups need not exist."""
        return CONFIGS.of(self)

    def apply(self, record: GroupRecord | TransactionEnd) -> LogState:
        """Return the state after one more record. A tombstone for nothing is legal (B2)."""
        if isinstance(record, TransactionEnd):
            return fold_end(self, record)
        return KINDS.fold(self, record)


class ShardSession(SessionState, frozen=True):
    """Session state of a shard; a value."""

    @property
    def groups(self) -> Map[str, ClassicGroup]:
        """Classic groups that have members or wait for some; all others are in the log."""
        return CLASSIC_LIVE.of(self)

    @property
    def draft_groups(self) -> Map[str, DraftGroup]:
        """Groups of the draft protocol that have consumers or wait for some."""
        return DRAFT_LIVE.of(self)

    @property
    def consumer(self) -> ConsumerSession:
        """The session state of the groups of the consumer protocol."""
        return SESSION.of(self)

    def group(self, log: GroupLog, group_id: str) -> ClassicGroup:
        """Return a classic group: the live one, the one in the log, or one that is `DEAD`."""
        return find(self, log, group_id)

    def group_ids(self, log: GroupLog) -> list[str]:
        """Return the ids of all groups."""
        return KINDS.ids(self, log)
