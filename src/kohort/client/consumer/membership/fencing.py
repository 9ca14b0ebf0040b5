"""Explain why a member is no longer in its group, and what its application can do."""

from __future__ import annotations

from kohort.client.config.definitions import ConsumerConfig
from kohort.errors import ErrorCode, error_name

# For groups of KIP-848 the session timeout is a setting of the broker.
_BROKERS_SESSION = "the session timeout, which the broker sets for this group"


def explanation(reason: str, code: int, config: ConsumerConfig) -> str:
    """Return in sentences why a member is out and what to do; arguments as in `cause`."""
    hint = _advice(reason, code, config)
    return f"{cause(reason, code, config)}." + (f" {hint}." if hint else "")


def cause(reason: str, code: int, config: ConsumerConfig) -> str:
    """Return why a member dropped out of its group.

    Args:
        reason: The reason given by its state machine.
        code: The last error code of the coordinator; 0 if not relevant.
        config: Settings.
    """
    if code:
        return f"{_meaning(code, config)} ({error_name(code)})"
    if "max.poll.interval.ms" in reason:
        return f"{reason} ({config.max_poll_interval_ms} ms)"
    return reason or "the coordinator has removed it"


def _advice(reason: str, code: int, config: ConsumerConfig) -> str:
    if "max.poll.interval.ms" in reason:
        return (
            "Process records faster, take fewer of them at a time (max.poll.records), or raise"
            " max.poll.interval.ms"
        )
    if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
        return (
            "If no administrator removed it: look for pauses of this process and of its network, or"
            " raise " + _setting_to_raise(config)
        )
    if code == ErrorCode.ILLEGAL_GENERATION and config.group_protocol != "draft":
        return (
            "If it had not polled for long: poll more often, or raise max.poll.interval.ms."
            " Otherwise the group has rebalanced more than once between two of its heartbeats, as"
            " when members come and go quickly or the group changes its protocol"
        )
    if code in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID):
        return "Give each running consumer a group.instance.id of its own"
    return ""


def _setting_to_raise(config: ConsumerConfig) -> str:
    if config.group_protocol == "consumer":
        return "the group's consumer.session.timeout.ms at the broker"
    if config.group_protocol == "classic":
        return "session.timeout.ms or max.poll.interval.ms"
    return "session.timeout.ms"


def _meaning(code: int, config: ConsumerConfig) -> str:
    if code == ErrorCode.UNKNOWN_MEMBER_ID:
        return f"the coordinator has removed it: {_removals(config)}"
    if code == ErrorCode.ILLEGAL_GENERATION:
        return "the group has started another generation without it"
    if code == ErrorCode.FENCED_MEMBER_EPOCH:
        return "the coordinator has another epoch for it, and has removed it"
    if code == ErrorCode.STALE_MEMBER_EPOCH:
        return "the group rebalanced while the request was in transit"
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        return "the group no longer exists: it was deleted, or all its members were removed"
    taken = f"another consumer has its group.instance.id {config.group_instance_id}"
    if code == ErrorCode.FENCED_INSTANCE_ID:
        return taken
    if code == ErrorCode.UNRELEASED_INSTANCE_ID:
        return f"{taken}, or has crashed with it, and its session has not expired"
    return "the coordinator refuses it"


def _removals(config: ConsumerConfig) -> str:
    others = "it was removed by an administrator, or the group was deleted"
    if config.group_protocol == "consumer":
        return (
            f"no heartbeat came within {_BROKERS_SESSION}, it did not give partitions up within"
            f" max.poll.interval.ms ({config.max_poll_interval_ms} ms), {others}"
        )
    session = f"no heartbeat came within session.timeout.ms ({config.session_timeout_ms} ms)"
    if config.group_protocol == "draft":
        interval = f"max.poll.interval.ms ({config.max_poll_interval_ms} ms)"
        return f"{session}, which also happens without a poll within {interval}"
    interval = f"({config.max_poll_interval_ms} ms, or the longest of all members)"
    late = f"it did not join again within max.poll.interval.ms {interval} after a rebalance began"
    return f"{session}, {late}, {others}"
