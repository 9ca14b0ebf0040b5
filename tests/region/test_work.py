"""What the work of an operator hands over, and what it forgets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from deltalake.exceptions import DeltaError
from immutables import Map

from kohort.client import ConsumerRecord
from kohort.errors import ConfigError, ErrorCode, KafkaError
from kohort.region import OperatorId, RegionPartition
from kohort.region.controlling import Controlling
from kohort.region.errors import FunctionError, SinkError
from kohort.region.log.control import ControlLog
from kohort.region.machines.events import ControllerInput, Delivered, Publish, PublishFailed
from kohort.region.machines.records import Ask, RegionSettings
from kohort.region.starts import StartPosition
from kohort.region.work import Batch, Cut, CutParts, Discard, Load, Report, Stop, Work
from kohort.region.worker import Worker, WorkerConfig

PARTITION = RegionPartition("t", "an-id", 0)


class Output:
    """Takes rows, and hands them over as text."""

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        self.rows: list[str] = []

    def write(self, _partition: RegionPartition, rows: object) -> None:
        self.rows += cast("Sequence[str]", rows)

    def prepare(self, _checkpoint: int, _attempt: int) -> str:
        rows, self.rows = self.rows, []
        return ",".join(rows)

    def abort(self) -> None:
        self.rows.clear()


def parts_of(reports: list[Report]) -> CutParts:
    return next(each for each in reports if isinstance(each, CutParts))


def test_what_was_stopped_is_handed_over_with_its_state() -> None:
    reports: list[Report] = []
    work = Work(reports.append, Output)
    work.obey(Load(PARTITION, 1, 5, b""))
    work.advance(PARTITION, 6, b'{"a":1}')
    work.obey(Stop(frozenset({PARTITION})))
    work.obey(Cut(1, 1))
    parts = parts_of(reports)
    assert parts.cut.positions == Map({PARTITION: 6})
    assert parts.states == {PARTITION: b'{"a":1}'}
    assert work.positions() == {}


def test_a26_an_offset_moves_after_the_function_has_returned_and_its_rows_are_taken() -> None:
    reports: list[Report] = []
    work = Work(reports.append, Output)
    work.obey(Load(PARTITION, 1, 5, b""))
    record = ConsumerRecord("t", 0, 5, 0, 0, None, b"1", (), -1)
    fetched = Batch(PARTITION, 1, [record])
    state = work.admit(fetched)
    assert state is not None
    assert (reports, work.positions()) == ([], {PARTITION: 5})
    work.obey(Cut(1, 1))  # the function is still to be called
    assert parts_of(reports).cut.positions == Map({PARTITION: 5})
    reports.clear()
    work.delivered(fetched, ["a row"])
    assert reports == [Delivered(PARTITION, 6, 1)]
    assert work.positions() == {PARTITION: 6}
    with pytest.raises(FunctionError, match="cannot be written: RuntimeError"):
        work.delivered(fetched, raising())
    assert (len(reports), work.positions()) == (1, {PARTITION: 6})


def raising() -> Iterator[str]:
    """Yield rows of which one cannot be made."""
    yield "a row"
    raise RuntimeError


def test_a22_the_queue_takes_a_hundred_polls() -> None:
    config = config_of({"max_poll_records": 7})
    inbox = Worker(config, cast("Any", None)).inbox
    record = ConsumerRecord("t", 0, 5, 0, 0, None, b"1", (), -1)
    for count, is_full in ((699, False), (1, True)):
        inbox.put(Batch(PARTITION, 1, [record] * count))
        assert inbox.is_full == is_full


def test_a_reset_forgets_what_was_written() -> None:
    reports: list[Report] = []
    work = Work(reports.append, Output)
    work.obey(Load(PARTITION, 1, 0, b""))
    work.write(PARTITION, ["before"])
    work.obey(Discard(2))
    work.obey(Load(PARTITION, 2, 0, b""))
    work.write(PARTITION, ["after"])
    work.obey(Cut(1, 2))
    assert parts_of(reports).cut.output == "after"


class Sink:
    """Shows nothing."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def check(self, _shown: object) -> None:
        pass

    def publish(self, checkpoint: int, _outputs: Mapping[OperatorId, str]) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (OSError("no room"), "no room"),
        (DeltaError("a commit is cut off"), "DeltaError: a commit is cut off"),
        (KeyError("a driver's own"), 'KeyError: "a driver\'s own"'),
    ],
)
def test_a_checkpoint_that_cannot_be_shown_is_not_said_to_be_visible(
    error: Exception, cause: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever a sink raises, the controller stays and tries it again."""

    async def play() -> list[ControllerInput]:
        told: list[ControllerInput] = []
        control = SimpleNamespace(region="r", topic="t")
        one = Controlling(
            cast("Any", None), cast("Any", control), cast("Any", Sink(error)), {}, "g"
        )
        cast("Any", one).tell = told.append
        await one._publish(Publish(3, Map()))
        return told

    assert asyncio.run(play()) == [PublishFailed(3, cause)]
    (logged,) = caplog.records
    assert "the output of checkpoint 3 cannot become visible, will try again" in caplog.text
    assert bool(logged.exc_info) == (cause != str(error))


def test_output_that_went_back_is_not_continued() -> None:
    """It is looked at before each publication: afterwards readers would have seen the gap."""
    done: list[str] = []

    def check(_shown: int) -> None:
        done.append("check")
        raise SinkError("it went back")

    async def play() -> list[ControllerInput]:
        told: list[ControllerInput] = []
        sink = SimpleNamespace(check=check, publish=lambda *_: done.append("publish"))
        control = SimpleNamespace(region="r", topic="t")
        one = Controlling(cast("Any", None), cast("Any", control), cast("Any", sink), {}, "g")
        cast("Any", one).tell = told.append
        await one._publish(Publish(3, Map(), 2))
        return told

    assert asyncio.run(play()) == [PublishFailed(3, "it went back")]
    assert done == ["check"]


class Broker:
    """Takes a record without an answer, and has a log that ends at 9."""

    async def send(self, *_: object, **__: object) -> asyncio.Future[None]:
        future = asyncio.get_running_loop().create_future()
        future.set_exception(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer"))
        return future

    async def end_offsets(self, places: Sequence[Any]) -> dict[Any, int]:
        return dict.fromkeys(places, 9)


@pytest.mark.parametrize("read_to", [0, 5])
def test_after_an_append_without_an_answer_the_log_is_read_to_its_end(read_to: int) -> None:
    async def play() -> int:
        control = ControlLog("r", {})
        control._producer = control._consumer = cast("Any", Broker())
        control.reader.position = read_to
        return await control.append([Ask("somebody", "drain", 1, 1)])

    assert asyncio.run(play()) == 9


def config_of(client: dict[str, Any], **settings: Any) -> WorkerConfig:
    return WorkerConfig(
        region="r", operator="one", topics=["t"], pattern=None,
        settings=RegionSettings(group_id="g", **settings), rebalance="checkpoint",
        start=StartPosition("earliest"), replication_factor=-1, client=client,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "drain", "reset", "interval"),
    [
        ({}, 10_000, 30_000, 300_000),
        ({}, 200_000, 30_000, 600_000),
        ({}, 10_000, 300_000, 900_000),
        ({}, 2**31 - 1, 1, 2**31 - 1),
        ({"max_poll_interval_ms": 90_000}, 10_000, 30_000, 90_000),
        ({"max_poll_interval_ms": "90000", "max_poll_records": "7"}, 10_000, 30_000, 90_000),
        ({"max_poll_interval_ms": 89_999}, 10_000, 30_000, None),
    ],
)
def test_14_polls_may_be_three_times_the_longest_timeout_apart(
    given: dict[str, Any], drain: int, reset: int, interval: int | None
) -> None:
    """Else the group throws out a member that holds a revocation until its checkpoint is there."""
    config = config_of(given, drain_timeout_ms=drain, reset_timeout_ms=reset)

    async def member_settings() -> dict[str, Any]:
        return Worker(config, cast("Any", None))._member_settings()

    if interval is None:
        with pytest.raises(ConfigError, match="must be at least 90000"):
            asyncio.run(member_settings())
    else:
        assert asyncio.run(member_settings())["max_poll_interval_ms"] == interval
