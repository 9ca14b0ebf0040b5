"""Programs: their parts, names and internal topics, and what is refused when they are built."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from kohort.streams import JSON, App, BuildError, Serde, Stream, Table
from kohort.streams.app.steps import Step
from kohort.streams.app.topology import InternalTopic, Program
from kohort.streams.assignment.tasks import Task
from kohort.streams.errors import DifferentProgramError, NotCoPartitionedError

COMPACT = {"cleanup.policy": "compact"}
KEPT = {"cleanup.policy": "delete", "retention.ms": "-1"}


def flights(**chosen: int) -> App:
    """Return an application with a join, a repartition topic, and a part without state."""
    app = App("delays")
    aircraft = app.topic("aircraft", key=str, value=JSON).table(name="aircraft")
    delays = app.topic("flights", key=str, value=JSON).join(
        aircraft, lambda flight, plane: flight["delay"], value=int
    )
    by_minute = delays.key_by(
        lambda key, delay: str(delay), key=str, name="by-delay", partitions=chosen.get("partitions")
    )
    by_minute.window(1_000, 0).count(name="per-second").to("per-second")
    app.topic("lines", key=bytes, value=str).filter(lambda key, value: bool(value)).to("filled")
    return app


def test_a_program_is_divided_at_its_repartition_topics() -> None:
    program = flights().build()
    assert [part.topics for part in program.parts] == [
        ("aircraft", "flights"),
        ("delays-by-delay-repartition",),
        ("lines",),
    ]
    assert [[step.name for step in part.stores] for part in program.parts] == [
        ["aircraft"],
        ["per-second"],
        [],
    ]
    assert program.topology.stateless == {2}
    assert program.source_topics == {"aircraft", "flights", "lines"}
    assert program.sink_topics == {"per-second", "filled"}
    tasks = program.topology.tasks({"aircraft": 2, "flights": 2, "lines": 1})
    assert tasks == [Task(0, 0), Task(0, 1), Task(2, 0)]


def test_internal_topics_have_names_counts_and_settings() -> None:
    program = flights().build()
    assert program.internal_topics({"aircraft": 3, "flights": 3, "lines": 9}) == [
        InternalTopic("delays-by-delay-repartition", 3, KEPT),
        InternalTopic("delays-aircraft-changelog", 3, COMPACT),
        InternalTopic("delays-per-second-changelog", 3, COMPACT),
    ]
    chosen = flights(partitions=5).build()
    topics = {
        topic.name: topic.partitions
        for topic in chosen.internal_topics({"aircraft": 3, "flights": 3, "lines": 9})
    }
    assert topics["delays-by-delay-repartition"] == topics["delays-per-second-changelog"] == 5


def test_a_repartition_topic_has_as_many_partitions_as_what_it_is_joined_with() -> None:
    app = App("app")
    table = app.topic("names", key=int, value=str).table(name="names")
    app.topic("events", key=str, value=int).key_by(
        lambda key, value: value, key=int, name="by-value"
    ).join(table, lambda value, name: name, value=str).to("out")
    topics = app.build().internal_topics({"names": 7, "events": 2})
    assert {topic.partitions for topic in topics} == {7}


def test_a_part_may_read_what_it_writes() -> None:
    app = App("app")
    numbers = app.topic("in", key=int, value=int)
    again = numbers.key_by(lambda key, value: value, key=int, name="again")
    again.join(numbers.table(name="t"), lambda one, other: one, value=int).to("out")
    program = app.build()
    assert [part.topics for part in program.parts] == [("in", "app-again-repartition")]
    assert {topic.partitions for topic in program.internal_topics({"in": 4})} == {4}


def test_parts_in_a_circle_have_a_number_of_partitions() -> None:
    app = App("app")
    first = app.topic("in", key=int, value=int).key_by(lambda k, v: v, key=int, name="first")
    second = first.key_by(lambda k, v: v, key=int, name="second")
    third = second.key_by(lambda k, v: v, key=int, name="third")
    third.join(first.table(name="t"), lambda one, other: one, value=int).to("out")
    program = app.build()
    assert len(program.parts) == 3
    assert {topic.partitions for topic in program.internal_topics({"in": 6})} == {6}


def test_a_topic_of_dead_letters_is_made_too() -> None:
    app = App("app", on_error="dead-letter")
    app.topic("in", key=bytes, value=bytes).to("out")
    (topic,) = app.build().internal_topics({"in": 4})
    assert (topic.name, topic.partitions) == ("app-dead-letters", 4)


# --------------------------------------------------------------------------------- co-partitioning


def test_topics_that_are_joined_need_the_same_number_of_partitions() -> None:
    program = flights().build()
    program.check_partitions({"aircraft": 3, "flights": 3, "lines": 1, "unrelated": 8})
    with pytest.raises(NotCoPartitionedError, match="aircraft has 3, flights has 4; put key_by"):
        program.check_partitions({"aircraft": 3, "flights": 4, "lines": 1})
    with pytest.raises(NotCoPartitionedError, match=r"\['aircraft'\], which do not exist"):
        program.check_partitions({"flights": 4, "lines": 1})


def test_internal_topics_that_exist_have_to_fit() -> None:
    program = flights().build()
    counts = {"aircraft": 3, "flights": 3, "lines": 1}
    program.check_partitions(counts | {"delays-by-delay-repartition": 3})
    for topic in ("delays-by-delay-repartition", "delays-aircraft-changelog"):
        with pytest.raises(NotCoPartitionedError, match=f"{topic} has 2 partitions and needs 3"):
            program.check_partitions(counts | {topic: 2})


# ------------------------------------------------------------------------------------------ digest


def digest_elsewhere() -> str:
    code = "from tests.streams.app.test_topology import flights; print(flights().build().digest)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_same_program_has_the_same_digest_in_every_process() -> None:
    assert flights().build().digest == digest_elsewhere() == digest_elsewhere()


def _program(change: Callable[[App], object]) -> Program:
    app = App("app")
    change(app)
    return app.build()


def _sum(key: str, value: int) -> int:
    return len(key) + value


def _text(key: str, value: int) -> str:
    return f"{key}{value}"


def _totals(app: App, value: Any) -> Stream[Any, Any]:
    windows = app.topic("in", key=str, value=int).window(5, 0)
    return windows.aggregate(int, lambda total, delay: total + delay, value=value, name="t")


DIFFERENT: list[Callable[[App], object]] = [
    lambda app: app.topic("in", key=str, value=int).to("out"),
    lambda app: app.topic("in", key=str, value=int).to("other"),
    lambda app: app.topic("in", key=bytes, value=int).to("out"),
    lambda app: app.topic("in", key=str, value=int).map(_sum, value=int).to("out"),
    lambda app: app.topic("in", key=str, value=int).count().to("out"),
    lambda app: app.topic("in", key=str, value=int).count(name="c").to("out"),
    lambda app: app.topic("in", key=str, value=int).window(5, 0).count().to("out"),
    lambda app: app.topic("in", key=str, value=int).window(5, 1).count().to("out"),
    lambda app: app.topic("in", key=str, value=int).window(5, 0, emit="final").count().to("out"),
    lambda app: _totals(app, int).to("out"),
    lambda app: _totals(app, JSON).to("out"),
    lambda app: app.topic("in", key=str, value=int).key_by(_text, key=str, partitions=2).to("out"),
    lambda app: app.topic("in", key=str, value=int).key_by(_text, key=str, partitions=3).to("out"),
    lambda app: app.topic("in", key=str, value=(str, int)).to("out"),  # type: ignore[arg-type]  # any pair
]


def test_programs_that_differ_are_told_apart() -> None:
    programs = [_program(change) for change in DIFFERENT]
    assert len({program.digest for program in programs}) == len(DIFFERENT)
    programs[0].check_digest(programs[0].digest, "member a")
    with pytest.raises(DifferentProgramError, match="member a runs another program under"):
        programs[0].check_digest(programs[1].digest, "member a")


def every_step() -> list[Step]:
    """Return a step of each kind that has serdes."""
    app = App("app")
    numbers = app.topic("in", key=str, value=int)
    table = numbers.aggregate(int, lambda total, delay: total + delay, value=int, name="sum")
    other = app.topic("names", key=str, value=str).table(name="names")
    table.join(other, lambda total, name: f"{name} {total}", value=str, name="both").to("out")
    numbers.window(5, 0).aggregate(int, lambda total, delay: total + delay, value=int).to("totals")
    return [step for part in app.build().parts for step in part.steps]


def test_each_serde_of_each_step_is_a_part_of_the_digest() -> None:
    found = set()
    for step in every_step():
        for field in step.__struct_fields__:
            if isinstance(getattr(step, field), Serde):
                changed = structs.replace(step, **{field: JSON})
                assert changed.describe() != step.describe(), f"{type(step).__name__}.{field}"
                found.add(type(step).__name__)
    assert found == {"Source", "Sink", "Aggregate", "ToTable", "JoinTables", "AggregateWindows"}


def test_a_corrected_function_does_not_make_another_program() -> None:
    one = _program(lambda app: app.topic("in", key=str, value=int).filter(lambda k, v: v > 0))
    other = _program(lambda app: app.topic("in", key=str, value=int).filter(lambda k, v: v >= 0))
    assert one.digest == other.digest


# ------------------------------------------------------------------------------------ build errors

WRONG: list[tuple[Callable[[App], object], str]] = [
    (lambda app: app.topic("in", key="xml", value=int), "topic in: 'xml' is not a serde: use"),
    (lambda app: app.topic("in", key=float, value=int), "is not a serde"),
    (lambda app: app.topic("in", key=(str, 3), value=int), "is not a serde"),  # type: ignore[arg-type]  # on purpose
    (lambda app: app.topic("in/put", key=str, value=int), "no topic can have the name"),
    (lambda app: [_numbers(app), _numbers(app)], "topic in is already read: keep the stream"),
    (lambda app: _numbers(app).count(name="a").stream().count(name="a"), "two steps have the name"),
    (lambda app: _numbers(app).count(name="a b"), "a count step cannot have the name 'a b'"),
    (lambda app: _numbers(app).map(_sum).to("out"), "to-2 needs the serde of its values"),
    (lambda app: _numbers(app).map(_sum).table(), "table-2 needs the serde"),
    (lambda app: _numbers(app).map(_sum).reduce(max), "reduce-2 needs the serde"),
    (lambda app: _numbers(app).map(_sum).window(1, 0).reduce(max), "window-2 needs the serde"),
    (lambda app: _numbers(app).map(_sum).key_by(_text, key=str), "key-by-2 needs the serde"),
    (lambda app: _numbers(app).key_by(_text, key=str, partitions=0), "partitions=0 is less than 1"),
    (lambda app: _numbers(app).window(0, 0), "a window of 0 ms with 0 ms of grace is invalid"),
    (lambda app: _numbers(app).window(1, -1), "is invalid"),
    (lambda app: _numbers(app).window(1, 0, emit="never"), "neither"),  # type: ignore[arg-type]  # on purpose
    (lambda app: _joined_with(app, App("app")), "belongs to another App"),
    (lambda app: _joined_with(app, app, key=bytes), "keys are str on one side and bytes"),
    (lambda app: None, "reads no topic: begin with app.topic"),
    (
        lambda app: _counted(app),
        "are internal topics of app",
    ),
]


def _numbers(app: App) -> Stream[str, int]:
    return app.topic("in", key=str, value=int)


def _counted(app: App) -> None:
    app.topic("more", key=str, value=int).count(name="c").to("app-c-changelog")


def _joined_with(app: App, other: App, key: type[Any] = str) -> object:
    table: Table[Any, int] = other.topic("other", key=key, value=int).table()
    return _numbers(app).join(table, lambda one, two: one, value=int)


@pytest.mark.parametrize(("change", "words"), WRONG)
def test_what_cannot_be_is_refused_when_it_is_built(
    change: Callable[[App], object], words: str
) -> None:
    with pytest.raises(BuildError) as error:
        _program(change)
    assert words in str(error.value)


def test_names_of_applications_are_those_of_topics() -> None:
    with pytest.raises(BuildError, match="an application cannot have the name 'a b'"):
        App("a b")


# -------------------------------------------------------------------------------------- serdes


def test_serdes_refuse_what_they_cannot_write_or_read() -> None:
    from kohort.streams.app.serdes import BYTES, INT, JSON, STR

    for serde, value in (
        (BYTES, "a"), (STR, b"a"), (STR, "\ud800"), (INT, True), (INT, 2**63), (INT, 1.0),
        (JSON, float("nan")), (JSON, b"a"), (JSON, "\ud800"),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError, OverflowError)):
            serde.serialize(value)  # type: ignore[arg-type]  # what the test is about
    for reader, data in (
        (STR, b"\xff"), (INT, b""), (INT, bytes(9)), (JSON, b""), (JSON, b"NaN"), (JSON, b"\xff"),
        (JSON, b"[" * 100_000),
    ):  # fmt: skip
        with pytest.raises((ValueError, RecursionError)):
            reader.deserialize(data)


def test_equal_keys_in_json_are_equal_bytes() -> None:
    from kohort.streams.app.serdes import JSON

    assert JSON.serialize({"a": 1, "b": "ü"}) == JSON.serialize({"b": "ü", "a": 1})
    assert JSON.deserialize(JSON.serialize({"a": [1, None, "ü"]})) == {"a": [1, None, "ü"]}


def test_a_serde_of_ones_own() -> None:
    app = App("app")
    hexed: Serde[int] = Serde("hex", lambda value: b"%x" % value, lambda data: int(data, 16))
    app.topic("in", key=hexed, value=(str.encode, bytes.decode)).to("out")
    driver = app.test()
    driver.send("in", 255, "x")
    (written,) = driver.read_records("out")
    assert (written.key, written.value) == (b"ff", b"x")
