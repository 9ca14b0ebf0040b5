"""The list of the kinds of group, and the look-up of a group's kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from kohort.group.coordinator.classic.kind import ClassicKind
from kohort.group.coordinator.consumer.kind import ConsumerKind
from kohort.group.coordinator.draft.kind import DraftKind
from kohort.group.coordinator.kind import Answer, Api, Fold, Group, Kind, Serve
from kohort.group.coordinator.migration.passage import TO_CLASSIC, cells
from kohort.group.coordinator.records import GroupLog, L, fold_offset
from kohort.group.coordinator.session import SessionState
from kohort.wire.codec.schema import Message
from kohort.wire.messages.group_records import GroupRecord, OffsetCommitKey


class Kinds:
    """Kinds of group, with the requests that each serves in one table.

    Args:
        kinds: The kinds. A group that only has positions belongs to the first. If a log has one
            group under two kinds, which no coordinator writes, it belongs to the later one.
        between: The functions for requests of one kind to a group of another, by API and kind.
    """

    def __init__(self, kinds: Sequence[Kind], between: Mapping[tuple[object, str], Serve]) -> None:
        self._between = between
        self._list(kinds)

    def _list(self, kinds: Sequence[Kind]) -> None:
        self.all = tuple(kinds)
        self._latest_first = self.all[::-1]
        self.apis: dict[type[Message], Api] = {}
        self.answers: dict[type[Message], Answer] = {}
        self._owners: dict[type[object], Kind] = {}
        self._cells: dict[tuple[object, str], Serve] = {}
        self._folds: dict[type[Message], Fold] = {OffsetCommitKey: fold_offset}
        for kind in kinds:
            self.apis.update(kind.apis)
            self.answers.update(kind.answers)
            self._owners.update(dict.fromkeys(kind.apis, kind))
            self._cells.update({(each, kind.name): serve for each, serve in kind.serves.items()})
            self._folds.update(kind.folds)
        self._cells.update(self._between)

    @contextmanager
    def also(self, kind: Kind) -> Iterator[None]:
        """Add a kind temporarily, as in a test of a new one."""
        before = self.all
        self._list((*before, kind))
        try:
            yield
        finally:
            self._list(before)

    def serving(
        self, session: SessionState, log: GroupLog, group_id: str, trigger: type[object]
    ) -> Serve | None:
        """Return the function for a group's request or deadline; None: its kind has none.

        The request's kind is tried first, because it is usually the group's kind.
        """
        owner = self._owners.get(trigger, self.all[0])
        if owner.lives(session, group_id):
            return self._cells.get((trigger, owner.name))
        kind = self.of(session, log, group_id, owner)
        return self._cells.get((trigger, kind.name))

    def of(
        self, session: SessionState, log: GroupLog, group_id: str, otherwise: Kind | None = None
    ) -> Kind:
        """Return the kind of a group; for a missing one, the given kind or the first."""
        for kind in self._latest_first:
            if kind.has(session, log, group_id):
                return kind
        return otherwise or self.all[0]

    def takes(self, kind: Kind, trigger: type[object]) -> bool:
        """Return whether a request or a deadline applies to groups of a kind."""
        return (trigger, kind.name) in self._cells

    def group(self, session: SessionState, log: GroupLog, group_id: str) -> Group:
        """Return a group of any kind; a missing one is in its kind's state for missing groups."""
        return self.of(session, log, group_id).group(session, log, group_id)

    def ids(self, session: SessionState, log: GroupLog) -> list[str]:
        """Return the ids of all groups, including those that only have positions (C50)."""
        ids = {*log.offsets, *log.pending}
        return sorted(ids.union(*(kind.ids(session, log) for kind in self.all)))

    def fold(self, log: L, record: GroupRecord) -> L:
        """Return the log state after one more record.

        Raises:
            KeyError: No kind reads such records.
        """
        return self._folds[type(record.key)](log, record)


_CONSUMER = ConsumerKind(TO_CLASSIC)

KINDS = Kinds(
    (
        ClassicKind(),
        DraftKind(),
        _CONSUMER,
    ),
    between=cells(_CONSUMER),
)
