"""Subscriptions by regular expression (K50).

The syntax is RE2's. Only the shell has a library for it, so it reports with each request whether
the expression is valid. A job finds the matching topics, and heartbeats do not wait for it: they
are answered from the present state, as in Kafka. So answers stay in order, and an older
subscription cannot replace a newer one. The topics are written to the log. They are resolved again
when topics were created, at most as often as the settings allow.
"""

from __future__ import annotations

from enum import Enum

from kohort.errors import ErrorCode
from kohort.group.coordinator.consumer.decision import ConsumerDecision, RegexJob
from kohort.group.coordinator.consumer.state import log_records
from kohort.group.coordinator.consumer.state.group import ConsumerGroup, Member, regex_tombstone
from kohort.group.coordinator.consumer.validate import Refused
from kohort.group.coordinator.jobs import MatchedTopics
from kohort.group.events import Cause
from kohort.values import replace


class Change(Enum):
    """The result of a change of a member's regular expression."""

    NONE = "none"
    CHANGED = "changed"
    RESOLVED = "changed, and its topics are known already"


def take_note(
    decision: ConsumerDecision,
    group: ConsumerGroup,
    member: Member,
    updated: Member,
    error: str | None,
) -> Change:
    """Drop the old expression after its last use, and check the new one.

    Args:
        decision: The group with the member's new metadata.
        group: The group before the change.
        member: The member before the change.
        updated: The member after the change.
        error: Why its expression is invalid.

    Raises:
        Refused: INVALID_REGULAR_EXPRESSION.
    """
    old, new = member.regex or "", updated.regex or ""
    if old == new:
        return Change.NONE
    if old and group.regex_subscribers.get(old) == 1:
        decision.write([regex_tombstone(group.group_id, old)])
    if not new:
        return Change.RESOLVED
    if error is not None:
        raise Refused(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{new}` is not a valid regular expression: {error}.",
        )
    return Change.RESOLVED if new in group.regexes else Change.CHANGED


def is_unresolved(group: ConsumerGroup) -> bool:
    """Return whether the group has an unresolved expression."""
    return len(group.regex_subscribers) != len(group.regexes)


def refresh(decision: ConsumerDecision) -> None:
    """Resolve the group's expressions again if that is due (KAFKA-18961)."""
    group, config = decision.existing, decision.config
    if not group.regex_subscribers or group.group_id in decision.session.resolving:
        return
    known = group.regexes.values()
    last = max((each.timestamp for each in known), default=None)
    age_ms = None if last is None else decision.wall_ms - last
    # A clock set back further, or another broker's clock, must not delay it.
    if age_ms is not None and abs(age_ms) <= config.regex_min_refresh_interval_ms:
        return
    unresolved = is_unresolved(group)
    outdated = any(each.version < decision.topics.created for each in known)
    overdue = age_ms is not None and age_ms > config.group_consumer_regex_refresh_interval_ms
    if unresolved or outdated or overdue:
        token = decision.take_token()
        regexes = frozenset(group.regex_subscribers)
        decision.jobs.append(RegexJob(token, decision.group_id, regexes, decision.topics))
        resolving = decision.session.resolving.set(group.group_id, token)
        decision.session = replace(decision.session, resolving=resolving)


def store(decision: ConsumerDecision, found: MatchedTopics) -> None:
    """Write the topics of expressions; begin a new epoch if they have changed.

    The next heartbeat of any member triggers the target assignment.
    """
    group = decision.group
    if group is None:
        return
    bump = False
    new = frozenset(found.matches).difference(group.regexes)
    for regex in sorted(found.matches):
        if regex not in group.regex_subscribers:
            continue
        topics = found.matches[regex]
        known = group.regexes.get(regex)
        bump = bump or topics != (known.topics if known else frozenset())
        decision.write(
            [
                log_records.regex_record(
                    group.group_id, regex, topics, found.version, decision.wall_ms
                )
            ]
        )
    value = decision.topics.metadata_hash(decision.existing.topics)
    if bump or value != group.metadata_hash or _gives_too_much(decision, new):
        decision.bump_epoch(Cause.TOPICS_CHANGED, "", value)
        seen = decision.session.seen.set(group.group_id, decision.topics.version)
        decision.session = replace(decision.session, seen=seen)


def _gives_too_much(decision: ConsumerDecision, regexes: frozenset[str]) -> bool:
    """Return whether the target gives members topics that their expressions no longer match.

    A new expression that matches nothing begins no epoch, but the member's former partitions then
    have no other owner until the next epoch; Kafka does the same (decision 0007).
    """
    group, names = decision.existing, decision.topics.names
    return any(
        topic.topic_id in names and names[topic.topic_id] not in group.topics_of(member)
        for member_id, member in group.members.items()
        if member.regex in regexes
        for topic in group.target.get(member_id, ())
    )
