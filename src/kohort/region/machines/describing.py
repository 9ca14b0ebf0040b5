"""Records and states of a region as sentences for people, and the members that its group lacks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import asdict

from kohort.region.machines.events import GroupMember
from kohort.region.machines.records import (
    NAMES,
    OperatorId,
    RegionPartition,
    RegionRecord,
    RegionSettings,
    writer_of,
)
from kohort.region.machines.state import Operator, Partition, RegionState

_LONG = 100
# It is a problem if more complete checkpoints than this wait to be published.
_UNPUBLISHED_MAX = 5
# Replaces the phase of a region whose log does not show that its operators were killed.
ALL_GONE = "GONE"
_LEFT_OUT = ("epoch", "incarnation", "operator", "seq", "writer", "digest")


def told_record(record: RegionRecord) -> str:
    """Describe a record in one line: its kind, its writer and its fields."""
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


def what_it_waits_for(state: RegionState, gone: Collection[Operator] = ()) -> str:
    """Describe in one clause what a region is doing, and which operators it waits for.

    Args:
        state: The region according to its log.
        gone: Operators that are no longer in the group.
    """
    if state.exhausted:
        return f"{state.exhausted}; only a forced reset is allowed (kohort region reset --force)"
    if not state.operators:
        return "no operator is running"
    if is_without(state, gone):
        return _without(state, gone)
    ill = [f"{each.id} ({each.unhealthy})" for each in state.operators.values() if each.unhealthy]
    if ill:
        return f"unhealthy: {', '.join(sorted(ill))}"
    awaited = sorted(str(each.id) for each in state.awaited())
    if awaited:
        return f"waits for {', '.join(awaited)} to return to checkpoint {state.completed}"
    if state.drain is not None and state.drain.missing:
        missing = ", ".join(map(str, state.drain.missing))
        return f"checkpoint {state.drain.checkpoint} waits for {missing}"
    if state.must_reset:
        return f"must reset: {state.must_reset}"
    if state.drain is not None:
        return f"checkpoint {state.drain.checkpoint} is being completed"
    if state.unpublished:
        return _being_published(state)
    return "it is processing"


def phase_of(state: RegionState, gone: Collection[Operator] = ()) -> str:
    """Return the name of the phase, or `GONE` if no operator is in the group any more."""
    is_gone = not state.exhausted and are_all_gone(state, gone)
    return ALL_GONE if is_gone else state.phase.name


def condition_of(state: RegionState, operator: Operator, gone: Collection[Operator] = ()) -> str:
    """Describe what an operator is doing, as `what_it_waits_for` does; `ok`: it is processing."""
    if operator in gone:
        return "gone"
    if operator.unhealthy:
        return f"unhealthy: {operator.unhealthy}"
    if operator.owned and operator.attempt < state.attempt:
        return f"returns to checkpoint {state.completed}"
    if state.drain is not None and operator.id in state.drain.missing:
        return f"drains for checkpoint {state.drain.checkpoint}"
    return "ok"


def lag_of(known: Partition, end: int | None) -> int | None:
    """Return how many records a partition is behind its end in the last checkpoint; None: unknown.

    Args:
        known: The partition.
        end: Its end offset; None: unknown.
    """
    # A recreated topic may end before the position in the old topic.
    return None if known.base is None or end is None else max(0, end - known.base)


def state_bytes_of(known: Partition) -> int:
    """Return the size of a partition's state in the last checkpoint."""
    return int(known.state.split(":")[1]) if known.state else 0


def are_all_gone(state: RegionState, gone: Collection[Operator]) -> bool:
    """Whether a region has operators, none of which is in the group any more."""
    return 0 < len(gone) == len(state.operators)


def is_without(state: RegionState, gone: Collection[Operator]) -> bool:
    """Describe a region that waits for the eviction of operators that left the group."""
    return any(each.owned for each in gone) or are_all_gone(state, gone)


def _without(state: RegionState, gone: Collection[Operator]) -> str:
    group = state.settings.group_id if state.settings else "-"
    if are_all_gone(state, gone):
        return (
            f"no operator is running, none is in group {group} (they were killed): the next one "
            f"to start continues from checkpoint {state.completed}; kohort region start makes "
            "complete checkpoints visible"
        )
    names = ", ".join(sorted(str(each.id) for each in gone if each.owned))
    return f"waits for the eviction of operators that are no longer in group {group}: {names}"


def _being_published(state: RegionState) -> str:
    first, later = state.unpublished[0].checkpoint, len(state.unpublished) - 1
    said = f"checkpoint {first} is being published"
    if later:
        behind = "1 later one waits" if later == 1 else f"{later} later ones wait"
        said = f"{said}, and {behind} behind it"
    return f"{said}: the log of the controller, {state.controller_name}, says why it takes long"


def publishing_problem(state: RegionState) -> str:
    """Describe output that does not become visible; empty if it does, or may do so soon."""
    waiting = [each.checkpoint for each in state.unpublished]
    if len(waiting) <= _UNPUBLISHED_MAX:
        return ""
    return (
        f"the output of {len(waiting)} complete checkpoints, {waiting[0]} to {waiting[-1]}, is not "
        "visible: the log of the controller says why it cannot be published"
    )


def _is_one_output(here: object, there: str) -> bool:
    one, other = str(here).partition(" ")[0], there.partition(" ")[0]
    return not one or not other or one == other


def told_differences(given: Mapping[str, object], region: RegionSettings) -> str:
    """Describe how settings differ from a region's, and the remedy; empty if they are equal.

    Args:
        given: Settings of a process, by name.
        region: The settings in the region's log.
    """
    there = asdict(region)
    differing = [
        f"{name} is {value} here and {there[name]} in the region"
        for name, value in given.items()
        if value != there[name] and not (name == "sink" and _is_one_output(value, region.sink))
    ]
    if not differing:
        return ""
    return (
        f"{', '.join(differing)}. A region keeps the settings it was created with: give all its "
        "workers the same, or use a region of another name, with a group and an output of its own"
    )


def strangers_among(members: Iterable[GroupMember], state: RegionState) -> list[GroupMember]:
    """Return the members of the group that are not operators of the region."""
    operators = {each.client_id for each in state.operators.values()}
    return [each for each in members if each.client_id not in operators]


def gone_among(
    members: Iterable[GroupMember], before: RegionState, after: RegionState
) -> list[Operator]:
    """Return the operators that were in the group and no longer are.

    An operator registers before it joins. So it counts as gone only if it owned partitions or has
    not taken part in a reset, or if no other operator is in the group.

    Args:
        members: The group, at rest.
        before: The region before the group was described.
        after: The region afterwards.
    """
    present = {each.client_id for each in members}
    operators = [each for _, each in sorted(after.operators.items())]
    missing = [e for e in operators if e.client_id not in present and before.active(e.id)]
    known = [before.operators[each.id.name] for each in missing]
    gone = [each.id for each in known if each.owned or each.attempt < before.attempt]
    if gone and len(missing) == len(operators):
        return missing
    return [each for each in missing if each.id in gone]


def told_stranger(member: GroupMember) -> str:
    """Describe the member, its effect on the region, and the remedy."""
    return (
        f"{member.client_id} on {member.host} is in the group but not an operator of the region, "
        "which does not get the records of its partitions: stop it, or give it "
        "another group.id"
    )
