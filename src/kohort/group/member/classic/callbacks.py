"""The listener's calls have returned (L3-L7). They may take as long as they like (a batch)."""

from __future__ import annotations

from kohort.group.events import Ownership
from kohort.group.member.classic import join, leave
from kohort.group.member.classic.session import MemberDraft
from kohort.group.member.events import CallbackDone
from kohort.values import replace


def _finish(draft: MemberDraft) -> None:
    """Note what the application knows now; that it failed changes nothing (L6)."""
    callback = draft.session.callback
    assert callback is not None
    owned, change = draft.session.owned, callback.change
    if change is Ownership.REVOKED and not draft.session.is_member:
        change = Ownership.LOST  # the member was removed before the application let go
    if callback.change is not Ownership.ASSIGNED:
        owned -= callback.partitions
    draft.session = replace(draft.session, callback=None, owned=owned)
    draft.say_told(callback, change)


def revoked(draft: MemberDraft, _done: CallbackDone) -> None:
    """L3: now that what had to be given up is, join."""
    _finish(draft)
    if not draft.session.is_member:
        # removed in the meantime: what it would have kept is lost as well
        draft.session = replace(draft.session, prepared=False)
    join.rejoin(draft, draft.session.reason)


def is_moving(draft: MemberDraft, _done: CallbackDone) -> bool:
    """Whether the application has given up what moves to another member."""
    callback = draft.session.callback
    return callback is not None and callback.change is Ownership.REVOKED


def moved(draft: MemberDraft, _done: CallbackDone) -> None:
    """L5: go on to what was added, unless all is lost by now."""
    _finish(draft)
    if draft.session.is_member:
        join.take_up(draft)
    else:
        draft.session = replace(draft.session, assignment=None)
        join.rejoin(draft, "the member was removed from the group")


def assigned(draft: MemberDraft, _done: CallbackDone) -> None:
    """L5: the rebalance is through."""
    _finish(draft)
    join.settle(draft)


def done_leaving(draft: MemberDraft, _done: CallbackDone) -> None:
    """L7: the next step of leaving."""
    _finish(draft)
    leave.go_on(draft)


def done_stale(draft: MemberDraft, _done: CallbackDone) -> None:
    """The application is back in its poll, for that is where callbacks run: join again."""
    _finish(draft)
    leave.come_back(draft)


def done_fatal(draft: MemberDraft, _done: CallbackDone) -> None:
    """What was assigned while the member failed is lost as well."""
    _finish(draft)
    if draft.session.owned:
        draft.call(Ownership.LOST, draft.session.owned)
