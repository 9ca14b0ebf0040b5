"""Random temporary faults of a broker, which clients must survive."""

from __future__ import annotations

from random import Random

from kohort.broker import Fault

# For each API, errors that are temporary, and errors that remove a member.
ERRORS = {
    "OffsetCommit": ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "REBALANCE_IN_PROGRESS"],
    "OffsetFetch": ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"],
    "JoinGroup": ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "UNKNOWN_MEMBER_ID"],
    "SyncGroup": ["NOT_COORDINATOR", "REBALANCE_IN_PROGRESS", "UNKNOWN_MEMBER_ID"],
    "Heartbeat": ["NOT_COORDINATOR", "REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION"],
    "ConsumerGroupHeartbeat": ["NOT_COORDINATOR", "UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH"],
    "LeaveGroup": ["NOT_COORDINATOR"],
    "FindCoordinator": ["COORDINATOR_NOT_AVAILABLE"],
    "ListOffsets": ["NOT_LEADER_OR_FOLLOWER", "LEADER_NOT_AVAILABLE"],
    "Fetch": ["NOT_LEADER_OR_FOLLOWER", "KAFKA_STORAGE_ERROR", "UNKNOWN_LEADER_EPOCH"],
    "Produce": ["NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS"],
    "InitProducerId": ["COORDINATOR_LOAD_IN_PROGRESS"],
    "Metadata": [],
}


def drawn_fault(chance: Random, apis: tuple[str, ...] = tuple(ERRORS)) -> Fault:
    """Return a fault that ends after one to three requests."""
    api = chance.choice(apis)
    times, nth = chance.randint(1, 3), chance.randint(1, 3)
    action = chance.choice(("error", "delay", "disconnect", "truncate"))
    if action == "error" and ERRORS[api]:
        error = chance.choice(ERRORS[api])
        return Fault(action="error", api=api, error=error, nth=nth, times=times)
    if action == "delay":
        return Fault(action="delay", api=api, delay_ms=chance.choice((50, 300)), times=times)
    effect = chance.random() < 0.5
    if action == "disconnect":
        return Fault(action="disconnect", api=api, effect=effect, nth=nth, times=times)
    return Fault(action="truncate", api=api, nth=nth, times=times)
