"""Records and states of a region as sentences for people."""

from __future__ import annotations

from msgspec.structs import asdict

from kohort.region.machines.records import (
    NAMES,
    OperatorId,
    RegionPartition,
    RegionRecord,
    writer_of,
)
from kohort.region.machines.state import RegionState

_LONG = 100
_LEFT_OUT = ("epoch", "incarnation", "operator", "seq", "writer", "digest")


def told_record(record: RegionRecord) -> str:
    """Return a record in one line: what it is, whose, and what it holds."""
    said = (f"{name}={_told(value)}" for name, value in asdict(record).items())
    kept = [each for each in said if each.split("=", 1)[0] not in _LEFT_OUT]
    name, _, incarnation = writer_of(record).partition(".")
    return " ".join([f"{NAMES[type(record)]:<12} {name}.{incarnation[:8]}", *kept])


def _told(value: object) -> str:
    if isinstance(value, frozenset):
        text = ",".join(str(each) for each in sorted(value)) or "-"
    elif hasattr(value, "items"):
        text = ",".join(f"{key}@{each}" for key, each in sorted(value.items())) or "-"
    elif isinstance(value, OperatorId | RegionPartition):
        text = str(value)
    else:
        text = str(value) if value not in ("", None) else "-"
    return text if len(text) <= _LONG else text[:_LONG] + "..."


def what_it_waits_for(state: RegionState) -> str:
    """Say in one clause what a region is doing, and for whom it waits."""
    if state.exhausted:
        return f"{state.exhausted}; only a forced reset goes on (kohort region reset --force)"
    if not state.operators:
        return "no operator is running"
    ill = [f"{each.id} ({each.unhealthy})" for each in state.operators.values() if each.unhealthy]
    if ill:
        return f"unhealthy: {', '.join(sorted(ill))}"
    awaited = sorted(str(each.id) for each in state.awaited())
    if awaited:
        return f"waits for {', '.join(awaited)} to go back to checkpoint {state.completed}"
    if state.drain is not None and state.drain.missing:
        missing = ", ".join(map(str, state.drain.missing))
        return f"checkpoint {state.drain.checkpoint} waits for {missing}"
    if state.must_reset:
        return f"must reset: {state.must_reset}"
    if state.unpublished:
        return f"checkpoint {state.unpublished[0].checkpoint} is being published"
    return "it is processing"
