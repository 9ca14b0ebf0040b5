"""The member's half of the group protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.lazy import importer

if TYPE_CHECKING:
    from kohort.group.member.classic.machine import ClassicMember
    from kohort.group.member.commits import CommitIdentity, CommitVerdict
    from kohort.group.member.config import MemberConfig
    from kohort.group.member.consumer.machine import ConsumerMember
    from kohort.group.member.draft.machine import DraftMember
    from kohort.group.member.events import (
        CallbackDone,
        Closing,
        CommitAnswered,
        CoordinatorKnown,
        CoordinatorLost,
        GroupMembershipOperation,
        JobDone,
        LookupFailed,
        MemberEvent,
        Polled,
        RejoinAsked,
        RequestFailed,
        ResponseArrived,
        Subscribed,
        Tick,
        TopicsNamed,
        Unsubscribed,
    )
    from kohort.group.member.leader import compute

__all__ = [
    "CallbackDone",
    "ClassicMember",
    "Closing",
    "CommitAnswered",
    "CommitIdentity",
    "CommitVerdict",
    "ConsumerMember",
    "CoordinatorKnown",
    "CoordinatorLost",
    "DraftMember",
    "GroupMembershipOperation",
    "JobDone",
    "LookupFailed",
    "MemberConfig",
    "MemberEvent",
    "Polled",
    "RejoinAsked",
    "RequestFailed",
    "ResponseArrived",
    "Subscribed",
    "Tick",
    "TopicsNamed",
    "Unsubscribed",
    "compute",
]

if not TYPE_CHECKING:  # a checker reads the imports above, and reports other names
    __getattr__, __dir__ = importer(
        __name__,
        __all__,
        {
            "CallbackDone": ".events",
            "ClassicMember": ".classic.machine",
            "Closing": ".events",
            "CommitAnswered": ".events",
            "CommitIdentity": ".commits",
            "CommitVerdict": ".commits",
            "ConsumerMember": ".consumer.machine",
            "CoordinatorKnown": ".events",
            "CoordinatorLost": ".events",
            "DraftMember": ".draft.machine",
            "GroupMembershipOperation": ".events",
            "JobDone": ".events",
            "LookupFailed": ".events",
            "MemberConfig": ".config",
            "MemberEvent": ".events",
            "Polled": ".events",
            "RejoinAsked": ".events",
            "RequestFailed": ".events",
            "ResponseArrived": ".events",
            "Subscribed": ".events",
            "Tick": ".events",
            "TopicsNamed": ".events",
            "Unsubscribed": ".events",
            "compute": ".leader",
        },
    )
