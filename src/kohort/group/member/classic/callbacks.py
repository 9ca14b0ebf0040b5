"""The listener's calls have returned (L3-L7). They may take as long as they like (a batch)."""

from __future__ import annotations

from kohort.group.events import Ownership
from kohort.group.member.classic import join, leave
from kohort.group.member.classic.session import ClassicMemberDecision
from kohort.group.member.events import CallbackDone
from kohort.values import replace


def _finish(decision: ClassicMemberDecision) -> None:
    """Note what the application knows now; that it failed changes nothing (L6)."""
    callback = decision.session.callback
    assert callback is not None
    owned, change = decision.session.owned, callback.change
    if change is Ownership.REVOKED and not decision.session.is_member:
        change = Ownership.LOST  # the member was removed before the application let go
    if callback.change is not Ownership.ASSIGNED:
        owned -= callback.partitions
    decision.session = replace(decision.session, callback=None, owned=owned)
    decision.say_told(callback, change)


def revoked(decision: ClassicMemberDecision, _done: CallbackDone) -> None:
    """L3: now that what had to be given up is, join."""
    _finish(decision)
    if not decision.session.is_member:
        # removed in the meantime: what it would have kept is lost as well
        decision.session = replace(decision.session, prepared=False)
    join.rejoin(decision, decision.session.reason)


def is_moving(decision: ClassicMemberDecision, _done: CallbackDone) -> bool:
    """Whether the application has given up what moves to another member."""
    callback = decision.session.callback
    return callback is not None and callback.change is Ownership.REVOKED


def moved(decision: ClassicMemberDecision, _done: CallbackDone) -> None:
    """L5: go on to what was added, unless all is lost by now."""
    _finish(decision)
    if decision.session.is_member:
        join.take_up(decision)
    else:
        decision.session = replace(decision.session, assignment=None)
        join.rejoin(decision, "the member was removed from the group")


def assigned(decision: ClassicMemberDecision, _done: CallbackDone) -> None:
    """L5: the rebalance is through."""
    _finish(decision)
    join.settle(decision)


def done_leaving(decision: ClassicMemberDecision, _done: CallbackDone) -> None:
    """L7: the next step of leaving."""
    _finish(decision)
    leave.go_on(decision)


def done_stale(decision: ClassicMemberDecision, _done: CallbackDone) -> None:
    """The application is back in its poll, for that is where callbacks run: join again."""
    _finish(decision)
    leave.come_back(decision)


def done_fatal(decision: ClassicMemberDecision, _done: CallbackDone) -> None:
    """What was assigned while the member failed is lost as well."""
    _finish(decision)
    if decision.session.owned:
        decision.call(Ownership.LOST, decision.session.owned)
