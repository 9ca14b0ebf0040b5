"""Reconciliation: from the current partitions of a member to its target (L32-L34).

The application first releases partitions; when it has done so, it is notified of new ones.
Heartbeats continue meanwhile. Newer targets are handled afterwards.
"""

from __future__ import annotations

from immutables import Map

from kohort.group.events import Ownership
from kohort.group.member.consumer import rhythm
from kohort.group.member.consumer.session import (
    ConsumerMemberDecision,
    ConsumerMemberSession,
    ConsumerMemberState,
    Partitions,
    TopicIdPartition,
)
from kohort.group.member.events import CallbackDone, TopicsNamed
from kohort.types import TopicPartition
from kohort.values import replace
from kohort.wire.messages.consumer_group import Assignment


def is_news(session: ConsumerMemberSession, assignment: Assignment | None) -> bool:
    """Return whether the target differs from the last one; None: no new target."""
    return assignment is not None and _partitions(assignment) != session.target


def note_target(decision: ConsumerMemberDecision, assignment: Assignment | None) -> None:
    """Store a target assignment; None: the last one still holds."""
    if assignment is not None:
        decision.session = replace(decision.session, target=_partitions(assignment))


def _partitions(assignment: Assignment) -> Partitions:
    return frozenset(
        TopicIdPartition(topic.topic_id, partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    )


def is_reconciled(session: ConsumerMemberSession) -> bool:
    """Return whether the member has acknowledged its last target."""
    if session.target is None:
        return True
    return (
        session.target == session.acknowledged
        and session.assignment_metadata == session.told_metadata
    )


def begin(decision: ConsumerMemberDecision, _event: object = None) -> None:
    """L32: reconcile the target, unless it is reconciled already."""
    if is_reconciled(decision.session):
        decision.enter(ConsumerMemberState.STABLE)
        return
    decision.enter(ConsumerMemberState.RECONCILING)
    go_on(decision)


def go_on(decision: ConsumerMemberDecision) -> None:
    """Take the first step: release partitions outside the target, or take new ones."""
    session = decision.session
    revoked = session.owned - (session.target or frozenset())
    if revoked:
        decision.call(Ownership.REVOKED, revoked)
    else:
        _take(decision, gave_up=False)


def _take(decision: ConsumerMemberDecision, *, gave_up: bool) -> None:
    """Take the new partitions whose topic names are known; the others wait for names (L32).

    The listener is called even without new partitions, so that it sees the end of each change.
    """
    session = decision.session
    added = _takeable(session)
    if not added and not gave_up and session.owned != session.target:
        return
    decision.session = replace(session, adding=added)
    decision.call(Ownership.ASSIGNED, added)


def _takeable(session: ConsumerMemberSession) -> Partitions:
    """Return the target's new partitions, except those with the name of an owned partition."""
    taken = set(session.named(session.owned))
    added: list[TopicIdPartition] = []
    for partition in sorted((session.target or frozenset()) - session.owned):
        name = session.names.get(partition.topic_id)
        if name is not None and (known := TopicPartition(name, partition.partition)) not in taken:
            taken.add(known)
            added.append(partition)
    return frozenset(added)


# ------------------------------------------------------------------------------ the names of topics


def note_names(decision: ConsumerMemberDecision, event: TopicsNamed) -> None:
    """L32: store topic names; partitions that waited for their names can be taken now."""
    session = decision.session
    wanted = {partition.topic_id for partition in session.claimed}
    names = {key: name for key, name in session.names.items() if key in wanted}
    learned = {key: name for key, name in event.names.items() if key in wanted}
    # owned partitions keep the names by which the application knows them
    decision.session = replace(session, names=Map(learned | names))
    if decision.state is ConsumerMemberState.RECONCILING and session.callback is None:
        go_on(decision)


# ------------------------------------------------------------------------ the application was told


def finish_call(decision: ConsumerMemberDecision, _done: CallbackDone) -> None:
    """Store the end of the call; an error of its listener changes nothing (L34)."""
    session = decision.session
    callback = session.callback
    assert callback is not None
    owned, adding = session.owned, session.adding
    if callback.change is Ownership.ASSIGNED:
        owned, adding = owned | adding, frozenset()
    else:
        owned = frozenset(
            partition
            for partition in owned
            if TopicPartition(session.names[partition.topic_id], partition.partition)
            not in callback.partitions
        )
    decision.session = replace(session, callback=None, owned=owned, adding=adding)
    decision.say_told(callback, callback.change)


def is_revocation(decision: ConsumerMemberDecision, _done: CallbackDone) -> bool:
    """Return whether the finished call gave partitions up."""
    callback = decision.session.callback
    return callback is not None and callback.change is not Ownership.ASSIGNED


def revoked(decision: ConsumerMemberDecision, done: CallbackDone) -> None:
    """L32: report the new partitions."""
    finish_call(decision, done)
    _take(decision, gave_up=True)


def assigned(decision: ConsumerMemberDecision, done: CallbackDone) -> None:
    """L32: the target is reached; tell the coordinator at once."""
    finish_call(decision, done)
    session = decision.session
    sent = None if session.sent is None else replace(session.sent, partitions=None)
    decision.session = replace(session, acknowledged=session.owned, sent=sent)
    decision.enter(ConsumerMemberState.ACKNOWLEDGING)
    rhythm.beat_soon(decision)
