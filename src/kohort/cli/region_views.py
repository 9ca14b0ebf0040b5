"""A region, its operators and its group as `kohort region` shows them: as text, or as JSON."""

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
    """Return a region as JSON has it."""
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
    """Return the partitions of the last complete checkpoint as JSON has them."""
    return [
        {
            "topic": partition.topic,
            "topic_id": partition.topic_id,
            "partition": partition.partition,
            "offset": known.position,
            "start": known.start,
            "state_bytes": int(known.state.split(":")[1]) if known.state else 0,
            "owner": str(known.owner) if known.owner else None,
        }
        for partition, known in sorted(state.partitions.items())
    ]


def shown(
    region: str,
    state: RegionState,
    gone: Collection[Operator] = (),
    waiting_s: int | None = None,
) -> Group:
    """Return a region as a person reads it."""
    from kohort.region.machines.describing import what_it_waits_for

    table = Table("OPERATOR", "HOST", "PROCESS", "PARTITIONS", "STATE", box=None, pad_edge=False)
    for name, each in sorted(state.operators.items()):
        condition = each.unhealthy or ("behind" if each.attempt < state.attempt else "ok")
        condition = "gone" if each in gone else condition
        owned = ", ".join(str(partition) for partition in sorted(each.owned)) or NONE
        table.add_row(name, each.host, each.process, owned, condition)
    group = state.settings.group_id if state.settings else NONE
    head = (
        f"REGION {region}  GROUP {group}  PHASE {_shown_phase(state, gone)}  "
        f"COMPLETED {state.completed}  ATTEMPT {state.attempt}  CONTROLLER-EPOCH {state.epoch}"
    )
    doing = f"{time.strftime('%H:%M:%S')}  {what_it_waits_for(state, gone)}"
    doing += "" if waiting_s is None else f" (for {waiting_s} s)"
    return Group(head, doing, table if state.operators else "")


def seen(region: str, sight: Sight) -> dict[str, object]:
    """Return a region and its group as JSON has them; null: not known, as the problem says."""
    from kohort.region.machines.describing import phase_of, publishing_problem, what_it_waits_for

    state = sight.state
    ids = {each.id for each in sight.gone}
    operators = [
        _operator(each) | {"gone": None if sight.problem else each.id in ids}
        for _, each in sorted(state.operators.items())
    ]
    problems = [each for each in (sight.problem, publishing_problem(state)) if each]
    return {
        **as_dict(region, state),
        "phase": phase_of(state, sight.gone),
        "waits_for": what_it_waits_for(state, sight.gone),
        "waiting_s": sight.waiting_s,
        "operators": operators,
        "strangers": _strangers(sight),
        "missing_topics": None if sight.problem else list(sight.missing_topics),
        "forced_resets": sight.forced_resets,
        "forced_resets_since": _iso(sight.forced_since_ms),
        "problem": "; ".join(problems) or None,
    }


def _strangers(sight: Sight) -> list[dict[str, str]] | None:
    """Return the members of the group that are no operators; None: not known."""
    found = [
        {"client_id": each.client_id, "host": each.host, "member_id": each.member_id}
        for each in sight.strangers
    ]
    return None if sight.problem else found


def shown_sight(region: str, sight: Sight) -> Group:
    """Return a region, what is wrong, and members of its group that are no operators."""
    from kohort.region.machines.describing import publishing_problem
    from kohort.region.machines.strangers import told_stranger
    from kohort.region.source import told_missing

    lines = [f"WARNING: {told_stranger(each)}" for each in sight.strangers]
    if sight.problem:
        lines.append(f"WARNING: the members of the group are unknown: {sight.problem}")
    lines += [f"WARNING: {told_missing(each)}" for each in sight.missing_topics]
    problem = publishing_problem(sight.state)
    if problem:
        lines.append(f"WARNING: {problem}")
    if sight.forced_resets:
        lines.append(
            f"FORCED RESETS {sight.forced_resets} since {_iso(sight.forced_since_ms)}; max_resets "
            "does not count them"
        )
    return Group(shown(region, sight.state, sight.gone, sight.waiting_s), *lines)


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
    """Say which checkpoint is the last of a region that was stopped."""
    said = f"checkpoint {state.completed} is the last"
    if not state.unpublished:
        return said
    return (
        f"{said}, and its output is not visible yet: the next controller publishes it (kohort "
        "region start runs one)"
    )
