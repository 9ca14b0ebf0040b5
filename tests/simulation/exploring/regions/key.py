"""Which states of a small region are the same.

Offsets of the log, attempts, checkpoints, epochs and the numbers of operators are counted up for
ever. Only equality and order can matter, as new ones follow the newest one. So each is replaced by
its rank among those of its kind in the whole state.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from hashlib import blake2b
from typing import Any, TypeAlias

from immutables import Map
from msgspec import Struct

from kohort.region.machines.records import Contribution, OperatorId, RegionPartition, Snapshot
from kohort.region.machines.state import Checkpoint, OpenDrain, Operator, Partition, RegionState
from tests.simulation.exploring.regions.state import Process, State

OFFSET, ATTEMPT, CHECKPOINT, EPOCH = range(4)
_FIELDS: Mapping[str, int] = {
    "registered_at": OFFSET,
    "buried_at": OFFSET,
    "snapshot_before": OFFSET,
    "read_to": OFFSET,
    "after": OFFSET,
    "before": OFFSET,
    "trimmed": OFFSET,
    "attempt": ATTEMPT,
    "checkpoint": CHECKPOINT,
    "completed": CHECKPOINT,
    "publishing": CHECKPOINT,
    "published": CHECKPOINT,
    "shown": CHECKPOINT,
    "epoch": EPOCH,
}
# For people, the same for all, determined by the rest, or counted and never compared.
_IGNORED = frozenset(
    """host process client_id token settings resets wait waiting_since progress progress_at seen
    missing members strangers publish_after why writer digest folded claim_again
    deadline close_deadline merge_due number life count""".split()  # noqa: SIM905  # a list of them would take eight lines
)
_TRUTHS = frozenset({"must_reset", "needs_reset", "unhealthy", "exhausted", "asked_drain", "ill"})
_IGNORED_OF: Mapping[type[object], frozenset[str]] = {
    # Of a partition's owner it is worked out again; offsets of records are small and stay.
    Operator: frozenset({"owned"}),
    # Sessions have forms of their own, and lives count by their order.
    Process: frozenset({"operator", "controller", "life"}),
    Snapshot: frozenset({"state"}),
}
# Values that many states share.
_SHARED = (Operator, Partition, OpenDrain, Contribution, Checkpoint)
# The fold's own offset, and those of records of the topic, have the same name.
_LITERAL_OFFSET = "offset"
_CACHE_MAX = 100_000

Numbers: TypeAlias = "list[tuple[object, int]]"
_Walk: TypeAlias = "Callable[[_Form, Any], None]"


class _Form:
    """The shape of a value, and the numbers that were found in it by their kind."""

    __slots__ = ("numbers", "owner", "shape")

    def __init__(self, owner: str) -> None:
        self.shape: list[object] = []
        self.numbers: Numbers = []
        self.owner = owner

    def number(self, kind: object, value: int) -> None:
        """Leave a number out of the shape."""
        self.shape.append("#")
        self.numbers.append((kind, value))

    def add(self, value: object) -> None:
        """Take a value apart."""
        kind = type(value)
        walk = _WALKS.get(kind)
        if walk is None:
            walk = _WALKS[kind] = _walk_of(kind)
        walk(self, value)

    def items(self, values: Iterable[object]) -> None:
        """Take several values apart."""
        entries = tuple(values)
        self.shape.append(len(entries))
        for each in entries:
            self.add(each)


def _literal(form: _Form, value: object) -> None:
    form.shape.append(value)


def _none(form: _Form, _value: object) -> None:
    form.shape.append("-")


def _operator(form: _Form, value: OperatorId) -> None:
    form.shape.append(value.name)
    form.number(("life", value.name), int(value.incarnation))


def _mapping(form: _Form, values: Mapping[Any, object]) -> None:
    form.shape.append(len(values))
    for key in sorted(values):
        form.add(key)
        form.add(values[key])


def _enum(form: _Form, value: Enum) -> None:
    form.shape.append(value.name)


def _candidate(form: _Form, value: str) -> None:
    """A candidate's name is that of its operator, and its life."""
    name, _, life = value.partition(".")
    form.shape.append(name)
    if life:
        form.number(("life", name), int(life))


def _walk_of(kind: type[Any]) -> _Walk:
    if issubclass(kind, OperatorId):
        return _operator
    if issubclass(kind, RegionPartition):
        return lambda form, value: form.shape.append(value.partition)
    if issubclass(kind, Struct):
        return _struct(kind)
    if issubclass(kind, (Map, dict)):
        return _mapping
    if issubclass(kind, (frozenset, set)):
        return lambda form, values: form.items(sorted(values))
    if issubclass(kind, (tuple, list)):
        return lambda form, values: form.items(values)
    if issubclass(kind, Enum):
        return _enum
    return _none if kind is type(None) else _literal


def _struct(kind: type[Struct]) -> _Walk:
    ignored = _IGNORED | _IGNORED_OF.get(kind, frozenset())
    names = [name for name in kind.__struct_fields__ if name not in ignored]
    plan = [(name, _field(kind, name)) for name in names]
    title = kind.__name__

    def walk(form: _Form, value: Any) -> None:
        form.shape.append(title)
        for name, into in plan:
            into(form, value, getattr(value, name))

    return _remembered(walk) if issubclass(kind, _SHARED) else walk


def _remembered(walk: _Walk) -> _Walk:
    """Return a walk that is done once for each value, which many states share."""
    known: dict[int, tuple[object, _Form]] = {}

    def again(form: _Form, value: object) -> None:
        found = known.get(id(value))
        if found is None or found[0] is not value:
            own = _Form(form.owner)
            walk(own, value)
            own.shape = [tuple(own.shape)]
            if len(known) > _CACHE_MAX:
                known.clear()
            found = known[id(value)] = value, own
        form.shape += found[1].shape
        form.numbers += found[1].numbers

    return again


def _field(kind: type[Struct], name: str) -> Callable[[_Form, Any, Any], None]:
    if name in _FIELDS:
        what = _FIELDS[name]
        return lambda form, _of, value: form.number(what, value)
    if name == _LITERAL_OFFSET and kind is RegionState:
        return lambda form, _of, value: form.number(OFFSET, value)
    if name in _TRUTHS:
        return lambda form, _of, value: form.shape.append(bool(value))
    if name in ("incarnation", "controller") and kind is not Process:
        return lambda form, _of, value: _candidate(form, value)
    if name == "seq":
        return _seq
    if name in ("read", "reads"):
        return _reads
    return lambda form, _of, value: form.add(value)


def _seq(form: _Form, of: object, value: int) -> None:
    """A record number belongs to its operator; 0: none."""
    who = getattr(of, "operator", None) or getattr(of, "id", None)
    whose = form.owner if who is None else f"{who.name}/{who.incarnation}"
    form.number(("seq", whose), value)


def _reads(form: _Form, _of: object, value: int | Mapping[RegionPartition, int]) -> None:
    if isinstance(value, int):
        form.number(("read", form.owner), value)
        return
    form.shape.append(len(value))
    for each in sorted(value):
        form.shape.append(each.partition)
        form.number(("read", form.owner), value[each])


_WALKS: dict[type[Any], _Walk] = {}


class Keys:
    """Computes keys of states; caches the forms of values that many states share."""

    def __init__(self) -> None:
        self._forms: dict[int, tuple[object, _Form]] = {}

    def _form(self, value: object, owner: str) -> _Form:
        known = self._forms.get(id(value))
        if known is not None and known[0] is value:
            return known[1]
        form = _Form(owner)
        form.add(value)
        form.shape = [tuple(form.shape)]
        if len(self._forms) > _CACHE_MAX:
            self._forms.clear()
        self._forms[id(value)] = value, form
        return form

    def key(self, state: State) -> bytes:
        """Return a key that is equal for states that no event can distinguish."""
        forms = [self._form(each, "") for each in state.log]
        for process in state.processes:
            owner = f"op-{process.number}/{process.life}"
            forms.append(self._form(process, owner))
            sessions = process.operator, process.controller
            forms += [self._form(session, owner) for session in sessions]
        rest = _Form("")
        for batch in sorted(state.late, key=repr):
            rest.items(batch)
        rest.add(state.visible)
        rest.shape += [state.is_swapped, state.left, state.is_rough, state.wrong]
        rest.number(CHECKPOINT, state.shown)
        for process in state.processes:
            rest.number(("life", f"op-{process.number}"), process.life)
            rest.number(OFFSET, process.folded_to)
        forms.append(rest)
        return _digest(forms)


def _digest(forms: list[_Form]) -> bytes:
    """Return the shapes and the ranks of the numbers in few bytes."""
    found: dict[object, set[int]] = {}
    for form in forms:
        for kind, value in form.numbers:
            found.setdefault(kind, {0}).add(value)
    ranks = {
        kind: {value: rank for rank, value in enumerate(sorted(values))}
        for kind, values in found.items()
    }
    said = [(form.shape, [ranks[kind][value] for kind, value in form.numbers]) for form in forms]
    return blake2b(marshal.dumps(said, 2), digest_size=16).digest()
