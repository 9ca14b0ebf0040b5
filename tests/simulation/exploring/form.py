"""The normal form of a value: the value without arbitrary names.

Ids, epochs and tokens are counted up; only equality and order can matter. A form keeps them apart
from the shape of their value, so that the shape is computed once for each value and the rest for
each state.

- Ids are strings that end with a number of six digits; new ones are greater than all others with
  the same beginning.
- Epochs are integers in fields of certain names; new ones are greater than the coordinator's.
- Tokens are known to one side and, while a request is in flight, to the other one.
- Deadlines count by their names; a member's may come at any moment, and the coordinator's count by
  their remaining time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, TypeAlias, cast

from immutables import Map
from msgspec import Struct

from kohort.group.coordinator.classic.group import ClassicGroup
from kohort.group.coordinator.consumer.state.group import ConsumerGroup
from kohort.group.coordinator.events import RequestArrived
from kohort.group.coordinator.session import Parked
from kohort.group.coordinator.topics import TopicsImage
from kohort.group.effects import Callback
from kohort.group.machine import Deadlines
from kohort.group.subscription import Subscription, decode_subscription
from tests.simulation.exploring.state import GROUP

ID = f"{GROUP}-"
_DIGITS = 6
NOW = 1_000_000

_EPOCHS = frozenset(
    """generation generation_id group_generation_id epoch member_epoch previous_epoch stored_epoch
    stored_assignment_epoch""".split()  # noqa: SIM905  # a list of them would take eight lines
)
# Partitions of each topic, with the epoch in which each was assigned.
_OWNED = frozenset({"assigned", "revoking"})
_SUBSCRIPTIONS = frozenset({"metadata", "subscription"})
# The counters of new ids and tokens.
_COUNTERS = frozenset({"next_token", "next_sequence"})
# Mappings whose keys are tokens.
_BY_TOKEN = frozenset({"installing"})
# Only for people, counted up without end, or determined by the rest.
_IGNORED = frozenset({"reason", "unique_id", "failures", "error_message"})
_IGNORED_OF: dict[type[object], frozenset[str]] = {
    Callback: frozenset({"generation"}),
    ClassicGroup: frozenset({"size", "support", "static"}),
    ConsumerGroup: frozenset(
        """static owners subscribers regex_subscribers votes client_assignors stable_in
        classic_members classic_support""".split()  # noqa: SIM905  # as above
    ),
}
# Whose tokens are those of requests.
_ANSWERS = (Parked, RequestArrived)


class Sink:
    """The parts found in a value, in the order of its fields."""

    __slots__ = ("counters", "epochs", "ids", "requests", "shape", "tokens")

    def __init__(self) -> None:
        self.shape: list[object] = []
        self.ids: list[str] = []
        self.epochs: list[int] = []
        self.tokens: list[int] = []
        self.requests: list[int] = []
        self.counters: list[int] = []

    def add(self, value: object) -> None:
        """Take a value apart."""
        kind = type(value)
        walk = _WALKS.get(kind)
        if walk is None:
            walk = _WALKS[kind] = _walk_of(kind)
        walk(self, value)


_Walk: TypeAlias = Callable[[Sink, Any], None]


def _literal(sink: Sink, value: object) -> None:
    sink.shape.append(value)


def _text(sink: Sink, value: str) -> None:
    prefix, number = value[:-_DIGITS], value[-_DIGITS:]
    if len(number) == _DIGITS and number.isdigit():
        sink.shape.append(prefix)
        sink.ids.append(value)
    else:
        sink.shape.append(value)


def _items(sink: Sink, values: Iterable[object]) -> None:
    entries = tuple(values)
    sink.shape.append(len(entries))
    for entry in entries:
        sink.add(entry)


def _mapping(sink: Sink, values: Mapping[Any, object]) -> None:
    sink.shape.append(len(values))
    for key, value in sorted(values.items()):
        sink.add(key)
        sink.add(value)


def _deadlines(sink: Sink, value: Deadlines[Any]) -> None:
    due = value.due_times()
    sink.shape.append(len(due))
    for deadline, at in sorted(due.items()):
        _items(sink, deadline)
        if len(deadline) > 1:  # the coordinator's: those of a member are nothing but a kind
            sink.shape.append(at - NOW)


def _epoch(sink: Sink, value: int | None) -> None:
    sink.shape.append(value is None)
    if value is not None:
        sink.epochs.append(value)


def _owned(sink: Sink, value: Mapping[Any, Mapping[int, int]] | None) -> None:
    for topic, partitions in sorted((value or {}).items()):
        sink.shape.append((topic, *sorted(partitions)))
        sink.epochs += [partitions[number] for number in sorted(partitions)]


def _by_token(sink: Sink, values: Mapping[int, object]) -> None:
    sink.shape.append(len(values))
    for token, value in sorted(values.items()):
        sink.tokens.append(token)
        sink.add(value)


def _token(sink: Sink, value: int) -> None:
    sink.tokens.append(value)


def _counter(sink: Sink, value: int) -> None:
    sink.counters.append(value)


def _request(sink: Sink, value: int) -> None:
    sink.requests.append(value)


@lru_cache(maxsize=10_000)
def _decoded(metadata: bytes) -> Subscription:
    return decode_subscription(metadata)


def _subscription(sink: Sink, metadata: bytes | Subscription | None) -> None:
    sink.add(_decoded(metadata) if isinstance(metadata, bytes) and metadata else metadata)


def _presence(sink: Sink, value: object) -> None:
    sink.shape.append(value is not None)


def _image(sink: Sink, value: TopicsImage) -> None:
    sink.shape.append(value.version)


def _walk_of(kind: type[Any]) -> _Walk:
    """Return a function that takes values of a class apart."""
    if kind is Deadlines:
        return _deadlines
    if kind is TopicsImage:
        return _image
    if issubclass(kind, Struct):
        return _fields(kind)
    if issubclass(kind, str) and not issubclass(kind, Enum):
        return cast("_Walk", _text)
    if issubclass(kind, (dict, Map)):
        return cast("_Walk", _mapping)
    if issubclass(kind, (tuple, list)):
        return cast("_Walk", _items)
    if issubclass(kind, (frozenset, set)):
        return lambda sink, values: _items(sink, sorted(values))
    return _literal


def _fields(kind: type[Struct]) -> _Walk:
    ignored = _IGNORED | _IGNORED_OF.get(kind, frozenset())
    plan = [
        (field, _field_walk(kind, field))
        for field in kind.__struct_fields__
        if field not in ignored
    ]
    name = kind.__name__

    def walk(sink: Sink, value: object) -> None:
        sink.shape.append(name)
        for field, into in plan:
            into(sink, getattr(value, field))

    return walk


def _field_walk(kind: type[object], field: str) -> _Walk:
    if field == "token":
        return _request if kind in _ANSWERS else _token
    if field in _COUNTERS:
        return _counter
    if field in _BY_TOKEN:
        return cast("_Walk", _by_token)
    if field in _EPOCHS:
        return _epoch
    if field in _OWNED and kind.__module__.endswith("consumer.state.group"):
        return cast("_Walk", _owned)
    if field in _SUBSCRIPTIONS:
        return cast("_Walk", _subscription)
    return _presence if field == "rejoin" else Sink.add


_WALKS: dict[type[Any], _Walk] = {}


# ------------------------------------------------------------------------------------------ forms


class Form(Struct, frozen=True, eq=False):
    """A value taken apart.

    Attributes:
        shape: Number of its shape: everything but ids, epochs and tokens of requests.
        ids: Its ids, in the order in which they were found.
        epochs: Its epochs.
        tokens: The rank of each of its tokens.
        requests: Tokens of requests that wait for an answer.
    """

    shape: int
    ids: tuple[str, ...]
    epochs: tuple[int, ...]
    tokens: dict[int, int]
    requests: tuple[int, ...]


class Forms:
    """Makes forms, and numbers shapes: equal ones have the same number."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}

    def of(
        self, values: tuple[object, ...], first_token: int = 0
    ) -> tuple[Form, tuple[object, ...]]:
        """Return the form of some values together, and a key that distinguishes it from others.

        Args:
            values: The values.
            first_token: Smaller tokens belong to a former connection, and count as equal.
        """
        sink = Sink()
        for value in values:
            sink.add(value)
        tokens = sorted({token for token in sink.tokens if token >= first_token})
        ranks = {token: rank for rank, token in enumerate(tokens)}
        shape = (*sink.shape, *(ranks.get(token, -1) for token in sink.tokens))
        number = self._numbers.setdefault(shape, len(self._numbers))
        ids, epochs, requests = tuple(sink.ids), tuple(sink.epochs), tuple(sink.requests)
        numbers = (*sink.tokens, *sink.counters)
        same = (number, ids, epochs, requests, first_token, numbers)
        return Form(number, ids, epochs, ranks, requests), same
