"""The output of `kohort region`, as text or as JSON: a region, its operators and its group."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table

from kohort.cli.shared import NONE

if TYPE_CHECKING:
    from collections.abc import Collection

    from kohort.region.inspecting import Sight
    from kohort.region.machines.records import RegionPartition
    from kohort.region.machines.state import Operator, RegionState


def exit_code(sight: Sight) -> int:
    """Return the exit code of `kohort region status`."""
    from kohort.region.machines.describing import is_without, publishing_problem

    state = sight.state
    if state.exhausted or len(sight.gone) == len(state.operators):
        return 4
    if is_without(state, sight.gone) or publishing_problem(state):
        return 3
    return 3 if state.phase.name not in ("PROCESSING", "CHECKPOINT_PENDING", "DRAINING") else 0


def as_dict(region: str, state: RegionState) -> dict[str, object]:
    """Return a region for JSON."""
    from kohort.region.machines.describing import what_it_waits_for

    settings = state.settings
    return {
        "region": region,
        "group": settings.group_id if settings else None,
        "phase": state.phase.name,
        "waits_for": what_it_waits_for(state),
        "attempt": state.attempt,
        "checkpoint": state.checkpoint,
        "completed": state.completed,
        "unpublished": [each.checkpoint for each in state.unpublished],
        "resets_in_a_row": state.resets,
        "controller_epoch": state.epoch,
        "operators": [_operator(each) for _, each in sorted(state.operators.items())],
        "partitions": partitions_of(state),
    }


def _operator(operator: Operator) -> dict[str, object]:
    return {
        "name": operator.id.name,
        "incarnation": operator.id.incarnation,
        "host": operator.host,
        "process": operator.process,
        "attempt": operator.attempt,
        "unhealthy": operator.unhealthy or None,
        "partitions": [str(each) for each in sorted(operator.owned)],
    }


def partitions_of(state: RegionState) -> list[dict[str, object]]:
    """Return the partitions of the last complete checkpoint for JSON."""
    from kohort.region.machines.describing import state_bytes_of

    return [
        {
            "topic": partition.topic,
            "topic_id": partition.topic_id,
            "partition": partition.partition,
            "offset": known.position,
            "start": known.start,
            "state_bytes": state_bytes_of(known),
            "owner": str(known.owner) if known.owner else None,
        }
        for partition, known in sorted(state.partitions.items())
    ]


def _shown(region: str, sight: Sight) -> Group:
    """Return a region as text."""
    from kohort.region.machines.describing import condition_of, what_it_waits_for

    state, gone = sight.state, sight.gone
    titles = ("OPERATOR", "HOST", "PROCESS", "PARTITIONS", "LAG", "STATE SIZE", "STATE")
    table = Table(*titles, box=None, pad_edge=False)
    for name, each in sorted(state.operators.items()):
        owned = ", ".join(str(partition) for partition in sorted(each.owned)) or NONE
        lag, size = _lag_of(sight, each.owned), _size_of(state, each.owned)
        measured = (NONE if lag is None else str(lag), _shown_size(size))
        table.add_row(
            name, each.host, each.process, owned, *measured, condition_of(state, each, gone)
        )
    group = state.settings.group_id if state.settings else NONE
    head = (
        f"REGION {region}  GROUP {group}  PHASE {_shown_phase(state, gone)}  "
        f"COMPLETED {state.completed}  ATTEMPT {state.attempt}  CONTROLLER-EPOCH {state.epoch}"
    )
    doing = f"{time.strftime('%H:%M:%S')}  {what_it_waits_for(state, gone)}"
    doing += "" if sight.waiting_s is None else f" (for {sight.waiting_s} s)"
    return Group(head, doing, table if state.operators else "")


def _lag_of(sight: Sight, partitions: Collection[RegionPartition]) -> int | None:
    """Return the number of records after the last checkpoint; None: unknown for some partition."""
    from kohort.region.machines.describing import lag_of
    from kohort.types import TopicPartition

    lags = [
        lag_of(sight.state.partition(p), sight.ends.get(TopicPartition(p.topic, p.partition)))
        for p in partitions
    ]
    known = [each for each in lags if each is not None]
    return sum(known) if len(known) == len(lags) else None


def _size_of(state: RegionState, partitions: Collection[RegionPartition]) -> int:
    from kohort.region.machines.describing import state_bytes_of

    return sum(state_bytes_of(state.partition(each)) for each in partitions)


def _shown_size(size: int) -> str:
    """Return a number of bytes as the page shows it."""
    if size < 1024:
        return f"{size} B"
    kib = size / 1024
    return f"{kib:.1f} KiB" if kib < 1024 else f"{kib / 1024:.1f} MiB"


def seen(region: str, sight: Sight) -> dict[str, object]:
    """Return a region and its group for JSON; null: unknown, for the reason in `problem`."""
    from kohort.region.machines.describing import phase_of, publishing_problem, what_it_waits_for

    state = sight.state
    known = (sight.problem, sight.unmeasured, publishing_problem(state))
    problems = [each for each in known if each]
    partitions = [
        told | {"lag": _lag_of(sight, [each])}
        for told, each in zip(partitions_of(state), sorted(state.partitions), strict=True)
    ]
    return {
        **as_dict(region, state),
        "phase": phase_of(state, sight.gone),
        "waits_for": what_it_waits_for(state, sight.gone),
        "waiting_s": sight.waiting_s,
        "lag": _lag_of(sight, state.partitions),
        "operators": [_seen_operator(sight, each) for _, each in sorted(state.operators.items())],
        "partitions": partitions,
        "strangers": _strangers(sight),
        "missing_topics": None if sight.problem else list(sight.missing_topics),
        "forced_resets": sight.forced_resets,
        "forced_resets_since": _iso(sight.forced_since_ms),
        "problem": "; ".join(problems) or None,
    }


def _seen_operator(sight: Sight, operator: Operator) -> dict[str, object]:
    from kohort.region.machines.describing import condition_of

    return {
        **_operator(operator),
        "gone": None if sight.problem else operator in sight.gone,
        "condition": condition_of(sight.state, operator, sight.gone),
        "lag": _lag_of(sight, operator.owned),
        "state_bytes": _size_of(sight.state, operator.owned),
    }


def marks(region: str, sight: Sight) -> dict[str, object]:
    """Return what `seen` does without what time alone changes: times, and the lag."""
    from kohort.values import replace

    found = seen(region, replace(sight, waiting_s=None, ends={}))
    return {name: value for name, value in found.items() if name != "forced_resets_since"}


def _strangers(sight: Sight) -> list[dict[str, str]] | None:
    """Return the members of the group that are not operators; None: unknown."""
    found = [
        {"client_id": each.client_id, "host": each.host, "member_id": each.member_id}
        for each in sight.strangers
    ]
    return None if sight.problem else found


def shown_sight(region: str, sight: Sight) -> Group:
    """Return a region as text, with problems and members that are not operators."""
    from kohort.region.machines.describing import publishing_problem, told_stranger
    from kohort.region.source import told_missing

    lines = [f"WARNING: {told_stranger(each)}" for each in sight.strangers]
    if sight.problem:
        lines.append(f"WARNING: the members of the group are unknown: {sight.problem}")
    lines += [f"WARNING: {told_missing(each)}" for each in sight.missing_topics]
    problems = (sight.unmeasured, publishing_problem(sight.state))
    lines += [f"WARNING: {each}" for each in problems if each]
    if sight.forced_resets:
        lines.append(
            f"FORCED RESETS {sight.forced_resets} since {_iso(sight.forced_since_ms)}; max_resets "
            "does not count them"
        )
    return Group(_shown(region, sight), *lines)


def _iso(at_ms: int | None) -> str | None:
    """Return a time as text, to the second."""
    if at_ms is None:
        return None
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")


def _shown_phase(state: RegionState, gone: Collection[Operator]) -> str:
    """Return the phase; before the first operator and after the last one it is the same."""
    from kohort.region.machines.describing import phase_of

    phase = phase_of(state, gone)
    return phase if state.operators else f"{phase} ({state.phase.value})"


def last_of(state: RegionState) -> str:
    """Return a sentence about the last checkpoint of a stopped region."""
    said = f"checkpoint {state.completed} is the last"
    if not state.unpublished:
        return said
    return (
        f"{said}, and its output is not visible yet: the next controller publishes it (kohort "
        "region start runs one)"
    )
