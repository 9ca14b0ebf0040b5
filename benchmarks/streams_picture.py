"""Draw which instance processed and which learned each task, from the instances' reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from kohort.observe.svg import Marker, draw
from kohort.observe.timeline import OwnershipTimeline
from kohort.types import TopicPartition

Event: TypeAlias = dict[str, Any]
"""A fact of `kohort.streams.events`, as JSON has it, with its kind."""

_LETTERS = "ABCDEFGH"
_MARGIN_MS = 500
_TOGETHER_MS = 3_000


def draw_moves(events: Sequence[Sequence[Event]]) -> str:
    """Return the picture as SVG.

    Args:
        events: The reports of each instance, in order; the instances are called A, B, and so on.
    """
    names = _LETTERS[: len(events)]
    by_name = zip(names, events, strict=True)
    told = [(_at(event), name, event) for name, found in by_name for event in found]
    told.sort(key=lambda each: each[0])
    tasks = sorted({_place(event) for _, _, event in told if event["kind"] == "TaskStarted"})
    begin = next(at for at, _, event in told if event.get("learning")) - _MARGIN_MS
    until = max(at for at, _, event in told if event["kind"] == "TaskStarted") + _MARGIN_MS
    owners, learners = OwnershipTimeline(tasks, begin), OwnershipTimeline(tasks, begin)
    for at, name, event in told:
        if at <= until:
            _note(owners, learners, max(at, begin), name, event)
    markers = _markers(told)
    return draw(owners, until, names, markers, learners=learners, rows="task 0_")


def _at(event: Event) -> int:
    at: int = event["stopped_at"] if event["kind"] == "TaskReleased" else event["at"]
    return at


def _place(event: Event) -> TopicPartition:
    return TopicPartition("", event["task"][1])


def _note(
    owners: OwnershipTimeline, learners: OwnershipTimeline, at: int, name: str, event: Event
) -> None:
    if event["kind"] == "TaskStarted":
        owners.own(_place(event), name, at)
    elif event["kind"] == "TaskReleased":
        owners.own(_place(event), None, at)
    elif event["kind"] == "TasksChanged":
        learned = {TopicPartition("", number) for _, number in event["learning"]}
        for place in owners.partitions:
            if place in learned:
                learners.own(place, name, at)
            elif learners.owners()[place] == name:
                learners.own(place, None, at)


def _markers(told: Sequence[tuple[int, str, Event]]) -> list[Marker]:
    """Return markers for joins and requested leaves; two consecutive ones are merged."""
    found: list[tuple[str, int, list[str]]] = []
    known = {told[0][1]}
    for at, name, event in told:
        what = "leaving" if event.get("reason") == "leaving soon" else ""
        if event["kind"] == "TasksChanged" and name not in known:
            known.add(name)
            what = "new"
        if what and found and found[-1][0] == what and at < found[-1][1] + _TOGETHER_MS:
            found[-1][2].append(name)
        elif what:
            found.append((what, at, [name]))
    return [Marker(at, f"{' and '.join(sorted(names))} {what}") for what, at, names in found]
