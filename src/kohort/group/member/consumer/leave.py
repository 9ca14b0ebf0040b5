"""Leaving: unsubscribe, close, removal, and an application that does not poll."""

from __future__ import annotations

from kohort.errors import KafkaError
from kohort.group.events import Ownership
from kohort.group.member.consumer import client_assignors, coordinator
from kohort.group.member.consumer.heartbeat_fields import leave_request
from kohort.group.member.consumer.session import NOT_JOINED, MemberDraft, MemberState
from kohort.group.member.events import POLL_OVERDUE, GroupMembershipOperation, PollOverdue
from kohort.values import replace

LEAVE_EPOCH = -1
LEAVE_FOR_NOW_EPOCH = -2

_NOT_POLLED = "the application did not poll within max.poll.interval.ms"


def join(draft: MemberDraft) -> None:
    """Begin to join, with nothing."""
    client_assignors.announce(draft)
    draft.enter(MemberState.JOINING)
    draft.start(POLL_OVERDUE, draft.config.max_poll_interval_ms)
    coordinator.beat_soon(draft)


def _forget_membership(draft: MemberDraft) -> None:
    """What was true as a member is not any more."""
    draft.cancel(*draft.session.deadlines.due_times())
    draft.session = replace(
        draft.session,
        epoch=NOT_JOINED,
        target=None,
        acknowledged=None,
        sent=None,
        pattern_sent=False,
        is_due=False,
        computation=None,
        asking=None,
        unasked=False,
        word=None,
        told=None,
    )


# ------------------------------------------------------------------------------- by its own will


def start(draft: MemberDraft, reason: str) -> None:
    """L30: the application gives up what it has, then the member says good-bye."""
    draft.cancel(POLL_OVERDUE)
    draft.session = replace(
        draft.session,
        target=None,
        asking=None,
        unasked=False,
        after_leaving=MemberState.UNSUBSCRIBED,
    )
    draft.enter(MemberState.PREPARE_LEAVING, reason)
    go_on(draft)


def go_on(draft: MemberDraft) -> None:
    """Take the next step: finish the open call, give up what is owned, say good-bye."""
    session = draft.session
    if session.callback is not None:
        return
    if session.owned:
        draft.call(Ownership.REVOKED if session.is_member else Ownership.LOST, session.owned)
    else:
        _take_leave(draft)


def _take_leave(draft: MemberDraft) -> None:
    says_good_bye = _may_leave(draft)
    _forget_membership(draft)
    if says_good_bye:
        draft.enter(MemberState.LEAVING)
        coordinator.beat_soon(draft)
    else:
        finish(draft)


def _may_leave(draft: MemberDraft) -> bool:
    """Whether there is somebody to say good-bye to, and the application wants that (KIP-1092)."""
    session = draft.session
    stays = session.closing is GroupMembershipOperation.REMAIN_IN_GROUP
    is_silent = stays and draft.config.group_instance_id is None
    return session.greeted and session.coordinator_known and not is_silent


def say_good_bye(draft: MemberDraft, _ready: object) -> None:
    """L37: once. A static member comes back, unless it is told to leave for good (L35)."""
    is_static = draft.config.group_instance_id is not None
    for_good = draft.session.closing is GroupMembershipOperation.LEAVE_GROUP
    epoch = LEAVE_FOR_NOW_EPOCH if is_static and not for_good else LEAVE_EPOCH
    draft.send(leave_request(draft.config, draft.session, epoch))
    if draft.session.after_leaving is MemberState.STALE:
        finish(draft)  # nobody waits for the answer


def finish(draft: MemberDraft) -> None:
    """The member is out of the group, or will be when its session ends."""
    after = draft.session.after_leaving
    draft.session = replace(draft.session, greeted=False, is_due=False, failures=0)
    if after is MemberState.STALE and draft.state is MemberState.PREPARE_LEAVING:
        draft.enter(MemberState.LEAVING)
    if after is MemberState.STALE:
        draft.enter(after, _NOT_POLLED)
        _lose(draft)
    else:
        draft.enter(after)


def good_bye_answered(draft: MemberDraft, _event: object) -> None:
    """L37: whatever the answer is, the member is out."""
    finish(draft)


def gone_unheard(draft: MemberDraft, _event: object) -> None:
    """The coordinator is lost before it heard the good-bye: the session will end by itself."""
    draft.session = replace(draft.session, coordinator_known=False)
    finish(draft)


def done_leaving(draft: MemberDraft, _done: object) -> None:
    """The next step of leaving."""
    go_on(draft)


# ----------------------------------------------------------------------------- max.poll.interval.ms


def become_stale(draft: MemberDraft, _overdue: PollOverdue) -> None:
    """L35: an application that does not poll cannot process: let others have its partitions.

    It is asked for nothing, it would not answer. What it owns is lost when it comes back.
    """
    draft.session = replace(draft.session, after_leaving=MemberState.STALE)
    draft.enter(MemberState.PREPARE_LEAVING, _NOT_POLLED)
    _take_leave(draft)


def _lose(draft: MemberDraft) -> None:
    session = draft.session
    if session.callback is None and session.owned:
        draft.call(Ownership.LOST, session.owned)


def done_stale(draft: MemberDraft, _done: object) -> None:
    """The application is back in its poll, for that is where callbacks run: join again."""
    _lose(draft)
    come_back(draft, _done)


def come_back(draft: MemberDraft, _event: object) -> None:
    """L35: it polls again; join once it knows what it lost."""
    if draft.session.callback is None and draft.session.wants:
        join(draft)


# --------------------------------------------------------------------- by the coordinator's will


def fence(draft: MemberDraft, reason: str) -> None:
    """L35: what it has is lost, then it joins again as who it is."""
    refused = draft.state is MemberState.JOINING
    failures = draft.session.failures
    _forget_membership(draft)
    draft.session = replace(draft.session, greeted=False)
    draft.enter(MemberState.FENCED, reason)
    if refused:  # it may be refused for ever: not as fast as the network allows
        draft.session = replace(draft.session, failures=failures)
        coordinator.beat_later(draft)
    _lose(draft)
    _leave_fenced(draft)


def done_fenced(draft: MemberDraft, _done: object) -> None:
    """L35: the application knows what it lost."""
    _lose(draft)
    _leave_fenced(draft)


def _leave_fenced(draft: MemberDraft) -> None:
    if draft.session.callback is not None:
        return
    if draft.session.wants:
        join(draft)
    else:
        _forget_membership(draft)
        draft.enter(MemberState.UNSUBSCRIBED)


def lose_membership(draft: MemberDraft) -> None:
    """Removed while the application is giving its partitions up: there is no good-bye to say."""
    _forget_membership(draft)
    draft.session = replace(draft.session, greeted=False)


def fail(draft: MemberDraft, code: int, what: str) -> None:
    """L36: there is no way back for this member; what it owns is lost."""
    draft.raised.append(KafkaError(code, what))
    _forget_membership(draft)
    draft.enter(MemberState.FATAL, what)
    _lose(draft)


def done_fatal(draft: MemberDraft, _done: object) -> None:
    """What was assigned while the member failed is lost as well."""
    _lose(draft)
