"""Streams and tables: each method adds a step to the program and returns its output.

Every function may be a coroutine function. Functions on streams take the key and the value, folding
functions take the state and the value, and joining functions take both values. Functions must
depend only on their arguments: after a crash, records are processed again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, Literal, TypeVar

from kohort.streams.app.plan import Plan, needed, no_state, optional, plus_one, reducing
from kohort.streams.app.serdes import INT, Serde, SerdeLike, serde_of
from kohort.streams.app.steps import (
    Aggregate,
    Filter,
    FlatMap,
    ForEach,
    JoinTable,
    JoinTables,
    KeyBy,
    Map,
    Sink,
    Source,
    StoreRef,
    ToTable,
    check_topic,
)
from kohort.streams.app.windows import AggregateWindows, Span, WindowedKey, windowed_serde
from kohort.streams.errors import BuildError

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
W = TypeVar("W")


class Stream(Generic[K, V]):
    """A stream of records; each method returns the output of its step.

    Methods take a `function`, the step's `name`, and the serde of the new `value` if a later step
    needs it. Streams come from `App.topic` and from other steps.
    """

    def __init__(self, plan: Plan, number: int, key: Serde[K], value: Serde[V] | None) -> None:
        self._plan = plan
        self._number = number
        self._key = key
        self._value = value

    def map(
        self,
        function: Callable[[K, V], T | Awaitable[T]],
        *,
        value: SerdeLike[T] | None = None,
        name: str | None = None,
    ) -> Stream[K, T]:
        """Replace each record's value by the result of a function of key and value.

        Args:
            function: Takes key and value, returns the new value.
            value: The serde of the new value, if a later step needs it.
            name: Name of the step.
        """
        label, number = self._plan.next_step("map", name)
        self._plan.add(Map(number=number, name=label, parents=self._here, function=function))
        return Stream(self._plan, number, self._key, optional(value, label))

    def filter(
        self, function: Callable[[K, V], bool | Awaitable[bool]], *, name: str | None = None
    ) -> Stream[K, V]:
        """Keep the records for which a function of key and value returns a true value."""
        label, number = self._plan.next_step("filter", name)
        self._plan.add(Filter(number=number, name=label, parents=self._here, function=function))
        return Stream(self._plan, number, self._key, self._value)

    def flat_map(
        self,
        function: Callable[[K, V], Iterable[T] | Awaitable[Iterable[T]]],
        *,
        value: SerdeLike[T] | None = None,
        name: str | None = None,
    ) -> Stream[K, T]:
        """Replace each record by one record for each value that a function returns."""
        label, number = self._plan.next_step("flat-map", name)
        self._plan.add(FlatMap(number=number, name=label, parents=self._here, function=function))
        return Stream(self._plan, number, self._key, optional(value, label))

    def for_each(
        self, function: Callable[[K, V], Awaitable[None] | None], *, name: str | None = None
    ) -> None:
        """Call a function with each key and value; after a crash, records may be repeated."""
        label, number = self._plan.next_step("for-each", name)
        self._plan.add(ForEach(number=number, name=label, parents=self._here, function=function))

    def to(
        self,
        topic: str,
        *,
        key: SerdeLike[K] | None = None,
        value: SerdeLike[V] | None = None,
        name: str | None = None,
    ) -> None:
        """Write the records to a topic.

        Args:
            topic: Name of the topic.
            key: The serde of keys; by default the stream's.
            value: The serde of values; by default the stream's.
            name: Name of the step.

        Raises:
            BuildError: The stream has no serde of values and none was given.
        """
        label, number = self._plan.next_step("to", name)
        keys = self._key if key is None else serde_of(key, label)
        values = needed(self._value, value, label)
        self._plan.add(
            Sink(
                number=number,
                name=label,
                parents=self._here,
                topic=check_topic(topic),
                key=keys,
                value=values,
            )
        )

    def key_by(
        self,
        function: Callable[[K, V], T | Awaitable[T]],
        *,
        key: SerdeLike[T],
        value: SerdeLike[V] | None = None,
        partitions: int | None = None,
        name: str | None = None,
    ) -> Stream[T, V]:
        """Give records new keys, and thereby move them to other tasks, through a repartition topic.

        Records whose new key is None are skipped, counted and logged.

        Args:
            function: Takes key and value, returns the new key.
            key: The serde of the new keys.
            value: The serde of the values; by default the stream's.
            partitions: Number of partitions of the topic; by default as many as the topics it is
                joined with have, or else as many as the largest topic read before it.
            name: Name of the step; the topic is `<application>-<name>-repartition`.

        Raises:
            BuildError: The stream has no serde of values and none was given.
        """
        plan = self._plan
        label, number = plan.next_step("key-by", name)
        if partitions is not None and partitions < 1:
            raise BuildError(f"{label}: partitions={partitions} is less than 1")
        keys, values = serde_of(key, label), needed(self._value, value, label)
        topic = f"{plan.name}-{label}-repartition"
        plan.add(KeyBy(number=number, name=label, parents=self._here, function=function))
        sink = Sink(
            number=number + 1,
            name=f"{label} out",
            parents=(number,),
            topic=topic,
            key=keys,
            value=values,
            needs_key=True,
        )
        source = Source(
            number=number + 2,
            name=f"{label} in",
            topic=topic,
            key=keys,
            value=values,
            is_repartition=True,
            partitions=partitions,
        )
        plan.add(sink)
        plan.add(source)
        return Stream(plan, source.number, keys, values)

    def aggregate(
        self,
        initial: Callable[[], T],
        function: Callable[[T, V], T | Awaitable[T] | None],
        *,
        value: SerdeLike[T],
        name: str | None = None,
    ) -> Table[K, T]:
        """Fold the values of each key; each change is emitted as a record.

        Records without a key or a value are skipped, counted and logged.

        Args:
            initial: Returns the initial state of a key.
            function: Takes state and value, returns the new state; None deletes it.
            value: The serde of states.
            name: Name of the step and of its store.
        """
        label, number = self._plan.next_step("aggregate", name)
        step = Aggregate(
            number=number,
            name=label,
            parents=self._here,
            key=self._key,
            value=serde_of(value, label),
            initial=initial,
            function=function,
        )
        self._plan.add(step)
        return Table(self._plan, number, step.reference)

    def reduce(
        self,
        function: Callable[[V, V], V | Awaitable[V]],
        *,
        value: SerdeLike[V] | None = None,
        name: str | None = None,
    ) -> Table[K, V]:
        """Fold the values of each key into a state of the same type, starting with the first.

        Args:
            function: Takes the state and a value, returns the new state.
            value: The serde of values; by default the stream's.
            name: Name of the step and of its store.

        Raises:
            BuildError: The stream has no serde of values and none was given.
        """
        label, _ = self._plan.next_step("reduce", name)
        values = needed(self._value, value, label)
        return self.aggregate(no_state, reducing(function), value=values, name=label)

    def count(self, *, name: str | None = None) -> Table[K, int]:
        """Count the records of each key."""
        label, _ = self._plan.next_step("count", name)
        return self.aggregate(int, plus_one, value=INT, name=label)

    def table(self, *, value: SerdeLike[V] | None = None, name: str | None = None) -> Table[K, V]:
        """Keep the last value of each key; a record without a value deletes its key.

        Raises:
            BuildError: The stream has no serde of values and none was given.
        """
        label, number = self._plan.next_step("table", name)
        values = needed(self._value, value, label)
        step = ToTable(number=number, name=label, parents=self._here, key=self._key, value=values)
        self._plan.add(step)
        return Table(self._plan, number, step.reference)

    def window(
        self, size_ms: int, grace_ms: int, *, emit: Literal["update", "final"] = "update"
    ) -> Windows[K, V]:
        """Divide the records into tumbling windows by their timestamps.

        Args:
            size_ms: Length of a window in milliseconds.
            grace_ms: Milliseconds after its end for which a window still accepts records, measured
                against the highest timestamp seen; later records are skipped, counted and logged.
            emit: "update": a result for each change of a window; "final": one result when it
                closes.

        Raises:
            BuildError: A time is out of range.
        """
        if size_ms < 1 or grace_ms < 0:
            raise BuildError(f"a window of {size_ms} ms with {grace_ms} ms of grace is invalid")
        if emit not in ("update", "final"):
            raise BuildError(f'emit={emit!r} is neither "update" nor "final"')
        span = Span(size_ms, grace_ms, emit == "final")
        return Windows(self._plan, self._number, self._key, self._value, span)

    def join(
        self,
        table: Table[K, W],
        function: Callable[[V, W], T | Awaitable[T]],
        *,
        value: SerdeLike[T] | None = None,
        name: str | None = None,
    ) -> Stream[K, T]:
        """Join each record with its key's current value in a table; skip it if there is none.

        The topics behind both must be co-partitioned, which is checked at startup. Records without
        a key or a value are skipped, counted and logged.

        Args:
            table: The table; its keys have the serde of the stream's keys.
            function: Takes the record's value and the table's value.
            value: The serde of the result, if a later step needs it.
            name: Name of the step.

        Raises:
            BuildError: The key serdes differ, or the table belongs to another application.
        """
        return self._join(table, function, value, name, is_left=False)

    def left_join(
        self,
        table: Table[K, W],
        function: Callable[[V, W | None], T | Awaitable[T]],
        *,
        value: SerdeLike[T] | None = None,
        name: str | None = None,
    ) -> Stream[K, T]:
        """Join like `join`, but call the function with None if the `table` has no value."""
        return self._join(table, function, value, name, is_left=True)

    def _join(
        self,
        table: Table[K, W],
        function: Callable[..., T | Awaitable[T]],
        value: SerdeLike[T] | None,
        name: str | None,
        *,
        is_left: bool,
    ) -> Stream[K, T]:
        label, number = self._plan.next_step("left-join" if is_left else "join", name)
        table.check_joined(label, self._plan, self._key)
        self._plan.add(
            JoinTable(
                number=number,
                name=label,
                parents=self._here,
                table=table.reference,
                function=function,
                is_left=is_left,
            )
        )
        return Stream(self._plan, number, self._key, optional(value, label))

    @property
    def _here(self) -> tuple[int]:
        return (self._number,)


class Table(Generic[K, V]):
    """The last value of each key, in a store with a changelog topic.

    Methods take a `function`, the step's `name`, and the serde of the new `value` if a later step
    needs it. Tables come from steps.

    Attributes:
        reference: Its store.
    """

    def __init__(self, plan: Plan, number: int, reference: StoreRef) -> None:
        self._plan = plan
        self._number = number
        self.reference = reference

    @property
    def name(self) -> str:
        """The name of its store."""
        return self.reference.name

    def stream(self) -> Stream[K, V]:
        """Return its changes as a stream; a value of None means that the key was deleted."""
        return Stream(self._plan, self._number, self.reference.key, self.reference.value)

    def to(self, topic: str, *, name: str | None = None) -> None:
        """Write the table's changes to the topic `topic`."""
        self.stream().to(topic, name=name)

    def for_each(
        self, function: Callable[[K, V], Awaitable[None] | None], *, name: str | None = None
    ) -> None:
        """Call a function for each change."""
        self.stream().for_each(function, name=name)

    def join(
        self,
        other: Table[K, W],
        function: Callable[[V, W], T | Awaitable[T]],
        *,
        value: SerdeLike[T],
        name: str | None = None,
    ) -> Table[K, T]:
        """Join two tables by key; a change in either table updates the result.

        The topics behind both must be co-partitioned, which is checked at startup.

        Args:
            other: The other table; its keys have the same serde.
            function: Takes both values; returns None for no result.
            value: The serde of the result.
            name: Name of the step and of the store that holds the result.

        Raises:
            BuildError: The key serdes differ, or the table belongs to another application.
        """
        return self._join(other, function, value, name, is_left=False)

    def left_join(
        self,
        other: Table[K, W],
        function: Callable[[V, W | None], T | Awaitable[T]],
        *,
        value: SerdeLike[T],
        name: str | None = None,
    ) -> Table[K, T]:
        """Join like `join`, but call the function with None if the `other` table has no value."""
        return self._join(other, function, value, name, is_left=True)

    def check_joined(self, where: str, plan: Plan, key: Serde[K]) -> None:
        """Check that this table can be joined with an application's stream or table.

        Raises:
            BuildError: It cannot be joined.
        """
        if plan is not self._plan:
            raise BuildError(f"{where}: table {self.name} belongs to another App")
        if key.name != self.reference.key.name:
            raise BuildError(
                f"{where}: keys are {key.name} on one side and {self.reference.key.name} in table"
                f" {self.name}, so equal keys would be different bytes"
            )

    def _join(
        self,
        other: Table[K, W],
        function: Callable[..., T | Awaitable[T]],
        value: SerdeLike[T],
        name: str | None,
        *,
        is_left: bool,
    ) -> Table[K, T]:
        kind = "left-join-tables" if is_left else "join-tables"
        label, number = self._plan.next_step(kind, name)
        other.check_joined(label, self._plan, self.reference.key)
        step = JoinTables(
            number=number,
            name=label,
            parents=(self._number, other._number),
            key=self.reference.key,
            value=serde_of(value, label),
            left=self.reference,
            right=other.reference,
            function=function,
            is_left=is_left,
        )
        self._plan.add(step)
        return Table(self._plan, number, step.reference)


class Windows(Generic[K, V]):
    """A stream in tumbling windows; its methods fold the values of each key in each window."""

    def __init__(
        self, plan: Plan, number: int, key: Serde[K], value: Serde[V] | None, span: Span
    ) -> None:
        self._plan = plan
        self._number = number
        self._key = key
        self._value = value
        self._span = span

    def aggregate(
        self,
        initial: Callable[[], T],
        function: Callable[[T, V], T | Awaitable[T]],
        *,
        value: SerdeLike[T],
        name: str | None = None,
    ) -> Stream[WindowedKey[K], T]:
        """Fold like `Stream.aggregate`; the result's keys are `WindowedKey` objects."""
        label, number = self._plan.next_step("window", name)
        keys, values = windowed_serde(self._key, self._span.size_ms), serde_of(value, label)
        self._plan.add(
            AggregateWindows(
                number=number,
                name=label,
                parents=(self._number,),
                key=keys,
                value=values,
                inner=self._key,
                initial=initial,
                function=function,
                span=self._span,
            )
        )
        return Stream(self._plan, number, keys, values)

    def reduce(
        self,
        function: Callable[[V, V], V | Awaitable[V]],
        *,
        value: SerdeLike[V] | None = None,
        name: str | None = None,
    ) -> Stream[WindowedKey[K], V]:
        """Fold like `Stream.reduce`; the result's keys are `WindowedKey` objects."""
        label, _ = self._plan.next_step("window", name)
        values = needed(self._value, value, label)
        return self.aggregate(no_state, reducing(function), value=values, name=name)

    def count(self, *, name: str | None = None) -> Stream[WindowedKey[K], int]:
        """Count the records of each key in each window."""
        return self.aggregate(int, plus_one, value=INT, name=name)
