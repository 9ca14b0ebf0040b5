"""The work of a process and its commands, as in `kohort.region.work`.

Output and states are named by their content, so that the name says what must be there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from immutables import Map

from kohort.region.machines.events import CutMade, Delivered, Discarded, MakeCut, Read, Stopped
from kohort.region.machines.records import RegionPartition
from kohort.values import replace
from tests.simulation.exploring.regions.state import Command, Discard, Lane, Piece, Process, Stop


def deliver(process: Process, partition: RegionPartition) -> Process:
    """The function is given the next record of a partition."""
    lane = process.lanes[partition]
    end = lane.position + 1
    return replace(
        process,
        lanes=process.lanes.set(partition, replace(lane, position=end)),
        pieces=(*process.pieces, Piece(partition, lane.position, end)),
        reports=(*process.reports, Delivered(partition, end, lane.read)),
    )


def obey(process: Process) -> Process:
    """Carry out the first command."""
    command: Command = process.commands[0]
    process = replace(process, commands=process.commands[1:])
    match command:
        case Read():
            lane = Lane(command.read, command.offset, command.offset)
            return replace(process, lanes=process.lanes.set(command.partition, lane))
        case Stop():
            lanes = process.lanes
            for each in command.partitions & frozenset(lanes):
                lanes = lanes.set(each, replace(lanes[each], runs=False))
            return _reports(replace(process, lanes=lanes), Stopped(command.partitions))
        case Discard():
            return _reports(replace(process, lanes=Map(), pieces=()), Discarded(command.attempt))
        case MakeCut():
            return _cut(process, command)


def _reports(process: Process, report: Stopped | Discarded | CutMade) -> Process:
    return replace(process, reports=(*process.reports, report))


def _cut(process: Process, command: MakeCut) -> Process:
    lanes = process.lanes
    made = CutMade(
        command.checkpoint,
        command.attempt,
        Map({each: lane.position for each, lane in lanes.items()}),
        Map({each: lane.read for each, lane in lanes.items()}),
        Map(
            {p: state(p, lane.position) for p, lane in lanes.items() if lane.position > lane.saved}
        ),
        output(process.pieces),
    )
    kept = {p: replace(lane, saved=lane.position) for p, lane in lanes.items() if lane.runs}
    return _reports(replace(process, lanes=Map(kept), pieces=()), made)


def state(partition: RegionPartition, offset: int) -> str:
    """Return the reference to the state that an undisturbed run has at an offset."""
    return f"{partition}@{offset}"


def output(pieces: Iterable[Piece]) -> str:
    """Return the reference to pieces of output."""
    return ";".join(f"{p.partition}:{p.first}:{p.end}" for p in pieces)


def pieces_of(reference: str) -> Iterator[tuple[str, int, int]]:
    """Yield the pieces of a reference: partition, first offset, end."""
    for each in reference.split(";") if reference else ():
        partition, first, end = each.split(":")
        yield partition, int(first), int(end)


def lengthened(
    ends: Mapping[RegionPartition, int], references: Iterable[str]
) -> tuple[Map[RegionPartition, int], str]:
    """Return the ends of partitions after this output, and what does not fit."""
    by_name = {str(partition): partition for partition in ends}
    found = dict(ends)
    for reference in references:
        for name, first, end in pieces_of(reference):
            partition = by_name[name]
            if found[partition] != first:
                word = "twice" if first < found[partition] else "missing"
                return Map(found), f"{name} from {first}, {found[partition]} is next: {word}"
            found[partition] = end
    return Map(found), ""
