"""Groups of the draft protocol (the 0.9 design) for the explorer."""

from __future__ import annotations

from immutables import Map

from kohort.group.coordinator.draft.group import STORED, DraftGroup, DraftState, StoredDraftGroup
from kohort.group.coordinator.draft.kind import group_of
from kohort.group.coordinator.state import LogState
from kohort.group.member.config import MemberConfig
from kohort.group.member.draft.machine import DraftMember, DraftMemberSession, DraftMemberState
from tests.simulation.exploring.state import GROUP, Coordinator, GroupProtocol, MemberKind

# Ids are compared as text, so their numbers all have as many digits.
_BEGUN = StoredDraftGroup(0, 100_000, "range", Map(), Map(), Map())


def draft() -> GroupProtocol:
    """Return the draft protocol; the group was used before, so that ids have many digits."""
    member = MemberKind(
        name="",
        machine=DraftMember(MemberConfig(group_id=GROUP), "host"),
        blank=lambda _id: DraftMemberSession(),
        can_close=_can_close,
    )
    return GroupProtocol(
        kinds=(member,),
        epoch=_epoch,
        is_current=_is_current,
        is_at_rest=lambda coordinator: (
            _group(coordinator).state in (DraftState.NONE, DraftState.STEADY)
        ),
        wrong=_wrong,
        fold=STORED.with_entry(LogState(), GROUP, _BEGUN),
    )


def _group(coordinator: Coordinator) -> DraftGroup:
    return group_of(coordinator.session, coordinator.fold, GROUP)


def _can_close(session: DraftMemberSession) -> bool:
    leaving = session.state is DraftMemberState.LEAVING
    return session.after_leaving is DraftMemberState.CLOSED and not leaving


def _epoch(coordinator: Coordinator) -> int:
    stored = coordinator.fold.draft_groups.get(GROUP)
    return stored.generation if stored else 0


def _is_current(coordinator: Coordinator, consumer_id: str, generation: int) -> bool:
    group = _group(coordinator)
    return consumer_id in group.consumers and generation == group.generation


def _wrong(coordinator: Coordinator) -> str:
    """S3: the log gives each partition to one consumer."""
    stored = coordinator.fold.draft_groups.get(GROUP)
    given = [each for owned in stored.owned.values() for each in owned] if stored else []
    return "S3: the log gives a partition to two consumers" if len(given) != len({*given}) else ""
