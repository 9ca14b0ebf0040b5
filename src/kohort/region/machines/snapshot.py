"""Conversion of a state to text and back: the content of a `Snapshot` record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import TypeAlias, TypeVar, cast

from immutables import Map

from kohort.region.errors import RegionRecordError
from kohort.region.machines import coding
from kohort.region.machines.records import (
    Contribution,
    OperatorId,
    RegionPartition,
)
from kohort.region.machines.state import Checkpoint, OpenDrain, Operator, Partition, RegionState
from kohort.values import replace

_Json: TypeAlias = object
_Object: TypeAlias = dict[str, object]
_PLAIN = [
    "offset",
    "buried_at",
    "attempt",
    "checkpoint",
    "completed",
    "must_reset",
    "forced",
    "resets",
    "exhausted",
    "asked_drain",
    "stopping",
    "epoch",
    "controller",
    "snapshot_before",
]


def digest(text: str) -> str:
    """Return the digest of a state's text."""
    return sha256(text.encode()).hexdigest()


def dump(state: RegionState) -> str:
    """Return a state as text; equal states have equal texts."""
    said: _Object = {name: getattr(state, name) for name in _PLAIN}
    if state.settings is not None:
        said["settings"] = coding.plain(state.settings)
    said["operators"] = [_operator(each) for _, each in sorted(state.operators.items())]
    said["partitions"] = [
        [*each, *_partition(known)] for each, known in sorted(state.partitions.items())
    ]
    said["drain"] = None if state.drain is None else _drain(state.drain)
    said["unpublished"] = [
        [
            each.checkpoint,
            each.attempt,
            [[*who, text] for who, text in sorted(each.outputs.items())],
        ]
        for each in state.unpublished
    ]
    # A state without records of format 2 keeps the text, and thus the digest, of format 1.
    if state.shown:
        said["shown"] = state.shown
    if state.began:
        said["began"] = coding.plain(state.began)
    return json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _operator(operator: Operator) -> list[_Json]:
    who = [*operator.id, operator.host, operator.process, operator.client_id]
    return [*who, operator.registered_at, operator.seq, operator.attempt, operator.unhealthy]


def _partition(known: Partition) -> list[_Json]:
    owner = [*known.owner] if known.owner else None
    waiting = [*known.waiting] if known.waiting else None
    return [owner, waiting, known.lost, known.leaving, known.start, known.position, known.state]


def _drain(drain: OpenDrain) -> _Json:
    covers = [[*who, coding.plain(each)] for who, each in sorted(drain.participants.items())]
    given = [_contribution(each) for _, each in sorted(drain.contributions.items())]
    return [drain.checkpoint, covers, given]


def _contribution(given: Contribution) -> list[_Json]:
    offsets, states = coding.plain(given.offsets), coding.plain(given.states)
    return [
        *given.operator,
        given.seq,
        given.attempt,
        offsets,
        states,
        coding.plain(given.released),
        given.output,
    ]


# ------------------------------------------------------------------------------------------- back


def load(text: str) -> RegionState:
    """Parse a text written by `dump`.

    Raises:
        RegionRecordError: The text is invalid.
    """
    try:
        return _state(json.loads(text))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise RegionRecordError(f"snapshot: {str(error)[:120]}") from None


def _state(said: _Json) -> RegionState:
    if not isinstance(said, dict):
        raise TypeError("no object")
    plain = {name: said.pop(name) for name in _PLAIN}
    _check(plain)
    settings = said.pop("settings", None)
    operators = [_read_operator(each) for each in _list(said.pop("operators"))]
    partitions = {
        coding.partition_of(_list(each)[:3]): _read_partition(_list(each)[3:])
        for each in _list(said.pop("partitions"))
    }
    state = RegionState(
        settings=None if settings is None else coding.settings_of(settings),
        operators=Map({each.id.name: each for each in operators}),
        partitions=Map(partitions),
        drain=_read_drain(said.pop("drain")),
        unpublished=tuple(_read_checkpoint(each) for each in _list(said.pop("unpublished"))),
        shown=coding.natural(said.pop("shown", 0)),
        began=coding.counts_of(said.pop("began", [])),
        **cast("dict[str, int]", plain),  # type: ignore[arg-type]  # `_check` has checked them
    )
    if said:
        raise ValueError(f"unknown: {min(said)}")
    return _with_owned(state)


def _check(plain: Mapping[str, _Json]) -> None:
    usual = RegionState()
    for name, value in plain.items():
        if type(value) is not type(getattr(usual, name)):
            raise TypeError(f"{name} is {value!r}")


def _with_owned(state: RegionState) -> RegionState:
    """Return the state with each operator's partitions, which the text contains only once."""
    owned: dict[OperatorId, set[RegionPartition]] = {}
    for partition, known in state.partitions.items():
        if known.owner is not None:
            owned.setdefault(known.owner, set()).add(partition)
    operators = {
        name: replace(each, owned=frozenset(owned.get(each.id, ())))
        for name, each in state.operators.items()
    }
    return replace(state, operators=Map(operators))


def _list(said: _Json) -> list[_Json]:
    if not isinstance(said, list):
        raise TypeError("no list")
    return said


_T = TypeVar("_T")


def _typed(value: _Json, kind: type[_T]) -> _T:
    if type(value) is not kind:
        raise TypeError(f"{str(value)[:40]!r} is no {kind.__name__}")
    return value


def _read_operator(said: _Json) -> Operator:
    name, incarnation, host, process, client_id, at, seq, attempt, unhealthy = _list(said)
    return Operator(
        id=coding.operator_of([name, incarnation]),
        host=_typed(host, str),
        process=_typed(process, str),
        client_id=_typed(client_id, str),
        registered_at=coding.natural(at),
        seq=coding.natural(seq),
        attempt=coding.natural(attempt),
        unhealthy=_typed(unhealthy, str),
    )


def _read_partition(said: list[_Json]) -> Partition:
    owner, waiting, lost, leaving, start, position, state = said
    return Partition(
        owner=None if owner is None else coding.operator_of(owner),
        waiting=None if waiting is None else coding.operator_of(waiting),
        lost=coding.truth(lost),
        leaving=coding.truth(leaving),
        start=None if start is None else coding.natural(start),
        position=None if position is None else coding.natural(position),
        state=_typed(state, str),
    )


def _read_drain(said: _Json) -> OpenDrain | None:
    if said is None:
        return None
    checkpoint, covers, given = _list(said)
    number = coding.natural(checkpoint)
    participants = {
        coding.operator_of(_list(each)[:2]): coding.partitions_of(_list(each)[2])
        for each in _list(covers)
    }
    contributions = [_read_contribution(number, each) for each in _list(given)]
    return OpenDrain(number, Map(participants), Map({e.operator: e for e in contributions}))


def _read_contribution(checkpoint: int, said: _Json) -> Contribution:
    name, incarnation, seq, attempt, offsets, states, released, output = _list(said)
    return Contribution(
        coding.operator_of([name, incarnation]),
        coding.natural(seq),
        checkpoint,
        coding.natural(attempt),
        coding.offsets_of(offsets),
        coding.states_of(states),
        coding.partitions_of(released),
        _typed(output, str),
    )


def _read_checkpoint(said: _Json) -> Checkpoint:
    checkpoint, attempt, outputs = _list(said)
    found = {
        coding.operator_of(_list(each)[:2]): _typed(_list(each)[2], str) for each in _list(outputs)
    }
    return Checkpoint(coding.natural(checkpoint), coding.natural(attempt), Map(found))
