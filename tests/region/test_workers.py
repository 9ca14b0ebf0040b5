"""Python workers of a region in one process, on the embedded broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from kohort.client import AdminClient, ConsumerRecord, NewTopic
from kohort.client.admin.values import ConfigResource
from kohort.errors import ConfigError, LocalProtocolError
from kohort.region import (
    CallableSink,
    ControlTopicError,
    DifferentRegionError,
    FunctionError,
    KeyedState,
    OperatorFencedError,
    ParquetDirectory,
    RegionPartition,
    SinkError,
    StateLimitError,
)
from kohort.region.inspecting import opened
from kohort.region.machines.records import Evict
from kohort.types import TopicPartition
from tests.region.regions import (
    PROTOCOLS,
    Counting,
    Running,
    eventually,
    produce,
    running,
    running_sum,
    visible,
    worker,
)

PARTITIONS = 4


def rows(path: Path) -> int:
    """Count the visible rows, wherever they begin."""
    files = (each for manifest in ParquetDirectory(path).manifests() for each in manifest["files"])
    return sum(each["rows"] for each in files)


def error_of(address: str, topic: str, path: Path, **settings: Any) -> BaseException:
    """Run a worker that must fail by itself, and return its error."""
    failing = Running(worker(address, topic, ParquetDirectory(path), **settings))
    failing.join()
    assert failing.error is not None
    return failing.error


def test_output_and_state_are_visible_once(address: str, topic: str, tmp_path: Path) -> None:
    produce(address, topic, PARTITIONS, 2_000)
    with running(worker(address, topic, ParquetDirectory(tmp_path))) as (one,):
        eventually(lambda: visible(tmp_path) == 2_000, "all is visible")
        produce(address, topic, PARTITIONS, 1_000, first=2_000)
        eventually(lambda: visible(tmp_path) == 3_000, "what came later is visible")
    assert one.error is None


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_orderly_hand_over_gives_no_record_twice(
    address: str, topic: str, tmp_path: Path, protocol: str
) -> None:
    counting = Counting(pause_s=0.005)
    sink, settings = ParquetDirectory(tmp_path), {"function": counting, **PROTOCOLS[protocol]}
    produce(address, topic, PARTITIONS, 8_000)
    with running(worker(address, topic, sink, "one", **settings)) as (one,):
        eventually(lambda: visible(tmp_path) > 200, "the first one works")
        with running(worker(address, topic, sink, "two", **settings)) as (two,):
            eventually(lambda: two.owned == PARTITIONS // 2, "the second one has its share")
            produce(address, topic, PARTITIONS, 4_000, first=8_000)
            eventually(lambda: visible(tmp_path) > 8_000, "both go on")
        eventually(lambda: one.owned == PARTITIONS, "the first one has all again")
        produce(address, topic, PARTITIONS, 1_000, first=12_000)
        eventually(lambda: visible(tmp_path) == 13_000, "all is visible")
    assert (one.error, two.error, counting.repeated) == (None, None, {})


def test_the_rule_of_the_original_resets_and_shows_nothing_twice(
    address: str, topic: str, tmp_path: Path
) -> None:
    sink = ParquetDirectory(tmp_path)
    counting = Counting(pause_s=0.02)
    settings = {"function": counting, "rebalance": "reset", **PROTOCOLS["eager"]}
    settings |= {"max_poll_records": 10, "period_ms": 2_000}
    produce(address, topic, PARTITIONS, 4_000)
    with running(worker(address, topic, sink, "one", **settings)) as (one,):
        eventually(lambda: visible(tmp_path) > 200, "the first one works")
        with running(worker(address, topic, sink, "two", **settings)) as (two,):
            eventually(lambda: two.owned == PARTITIONS // 2, "the second one has its share")
        eventually(lambda: visible(tmp_path) == 4_000, "all is visible")
    assert (one.error, two.error) == (None, None)
    assert one.worker.state is not None
    assert one.worker.state.attempt > 1


def test_a_restarted_region_goes_on_behind_its_last_checkpoint(
    address: str, topic: str, tmp_path: Path
) -> None:
    counting = Counting()
    for round_ in range(3):
        produce(address, topic, PARTITIONS, 1_000, first=1_000 * round_)
        with running(worker(address, topic, ParquetDirectory(tmp_path), function=counting)):
            eventually(lambda: visible(tmp_path) == 1_000 * (round_ + 1), "all is visible")  # noqa: B023  # called within the round
    assert counting.repeated == {}


def test_a_function_that_raises_ends_its_worker_and_loses_nothing(
    address: str, topic: str, tmp_path: Path
) -> None:
    def fail_once(
        partition: RegionPartition, records: Sequence[ConsumerRecord], state: KeyedState
    ) -> list[dict[str, int]]:
        if any(record.value == b"777" for record in records):
            raise ZeroDivisionError("no luck")
        return running_sum(partition, records, state)

    produce(address, topic, PARTITIONS, 1_000)
    error = error_of(address, topic, tmp_path, function=fail_once)
    assert isinstance(error, FunctionError)
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert f"of {topic}-1: no luck" in str(error)
    with running(worker(address, topic, ParquetDirectory(tmp_path))):
        eventually(lambda: visible(tmp_path) == 1_000, "the next one does all of it")


def test_a_sink_of_functions(address: str, topic: str) -> None:
    prepared: dict[str, list[Any]] = {}
    shown: dict[int, list[Any]] = {}

    def prepare(_operator: object, checkpoint: int, rows: Sequence[Any]) -> str:
        prepared[f"cut-{checkpoint}"] = list(rows)
        return f"cut-{checkpoint}"

    def commit(checkpoint: int, references: Sequence[str]) -> None:
        shown[checkpoint] = [row for each in references for row in prepared[each]]

    produce(address, topic, PARTITIONS, 400)
    with running(worker(address, topic, CallableSink(prepare, commit))):
        eventually(lambda: sum(map(len, shown.values())) == 400, "all is committed")


def test_state_beyond_the_limit_is_refused(address: str, topic: str, tmp_path: Path) -> None:
    def hoard(
        _partition: RegionPartition, records: Sequence[ConsumerRecord], state: KeyedState
    ) -> None:
        state["all"] = "x" * 600_000

    produce(address, topic, PARTITIONS, 100)
    error = error_of(address, topic, tmp_path, function=hoard)
    assert isinstance(error, StateLimitError)
    assert "600010 bytes, and a region allows 524288 per partition" in str(error)


def test_the_newer_process_of_a_name_wins(address: str, topic: str, tmp_path: Path) -> None:
    produce(address, topic, PARTITIONS, 500)
    sink = ParquetDirectory(tmp_path)
    with running(worker(address, topic, sink, "one")) as (older,):
        eventually(lambda: visible(tmp_path) == 500, "the older one works")
        with running(worker(address, topic, sink, "one")) as (newer,):
            older.join()
            assert isinstance(older.error, OperatorFencedError)
            produce(address, topic, PARTITIONS, 500, first=500)
            eventually(lambda: visible(tmp_path) == 1_000, "the newer one goes on")
    assert newer.error is None


def test_a_worker_that_was_evicted_is_told_why_and_what_to_do(
    address: str, topic: str, tmp_path: Path
) -> None:
    produce(address, topic, PARTITIONS, 100)
    with running(worker(address, topic, ParquetDirectory(tmp_path))) as (one,):
        eventually(lambda: visible(tmp_path) == 100, "it works")
        asyncio.run(evict(address, one.worker.region, "it is no longer in the group"))
        one.join()
    assert isinstance(one.error, OperatorFencedError)
    said = str(one.error)
    assert "the controller evicted it: it is no longer in the group" in said
    assert "a longer session_timeout_ms" in said
    assert "a longer reset_timeout_ms" in said


async def evict(address: str, region: str, why: str) -> None:
    """Say what the controller would say of a process that was stopped for too long."""
    async with opened(region, {"bootstrap_servers": address}) as control:
        state = await control.caught_up()
        (operator,) = state.operators.values()
        await control.append([Evict(state.epoch, state.controller, operator.id, why)])


def test_another_group_is_refused(address: str, topic: str, tmp_path: Path) -> None:
    with running(worker(address, topic, ParquetDirectory(tmp_path), "one")) as (one,):
        eventually(lambda: one.owned == PARTITIONS, "it works")
        error = error_of(address, topic, tmp_path, operator="two", group_id="another")
    assert isinstance(error, DifferentRegionError)
    assert "another" in str(error)


@pytest.mark.parametrize(
    ("partitions", "policy", "said"),
    [(2, "compact", "has 2 partitions and must have one"), (1, "delete", "must have compact")],
)
@pytest.mark.parametrize("suffix", ["", "-state"])
def test_a_topic_that_cannot_hold_a_region_is_refused(
    address: str,
    topic: str,
    tmp_path: Path,
    partitions: int,
    policy: str,
    said: str,
    suffix: str,
) -> None:
    own = f"__kohort-region-region-{topic}"
    with AdminClient(bootstrap_servers=address) as admin:
        if suffix:  # else the control topic would seem to be missing
            admin.create_topics([NewTopic(own, 1, 1, {"cleanup.policy": "compact"})])
        wrong = NewTopic(own + suffix, partitions, 1, {"cleanup.policy": policy})
        admin.create_topics([wrong])
    error = error_of(address, topic, tmp_path)
    assert isinstance(error, ControlTopicError)
    assert f"{own}{suffix} has " in str(error)
    assert said in str(error)


def test_a_region_that_was_made_anew_does_not_write_into_the_old_ones_output(
    address: str, topic: str, tmp_path: Path
) -> None:
    produce(address, topic, PARTITIONS, 100)
    with running(worker(address, topic, ParquetDirectory(tmp_path))):
        eventually(lambda: visible(tmp_path) == 100, "all is visible")
    control = f"__kohort-region-region-{topic}"
    with AdminClient(bootstrap_servers=address) as admin:
        admin.delete_topics([control])
        error = error_of(address, topic, tmp_path)
        assert isinstance(error, ControlTopicError)
        assert "the control topic was deleted" in str(error)
        assert control not in admin.list_topics()
        admin.delete_topics([f"{control}-state"])
    error = error_of(address, topic, tmp_path)
    assert isinstance(error, SinkError)
    assert "start a region of another name, with an output of its own" in str(error)


def test_a_damaged_record_in_the_control_topic_is_passed_over(
    address: str, topic: str, tmp_path: Path
) -> None:
    from kohort.client import Producer

    produce(address, topic, PARTITIONS, 200)
    sink = ParquetDirectory(tmp_path)
    with running(worker(address, topic, sink)) as (one,):
        eventually(lambda: visible(tmp_path) == 200, "it works")
        with Producer(bootstrap_servers=address) as foreign:
            for key, value in ((b"x", b"y"), (b"drain/a/b", b"{}"), (b"", b"\xff"), (b"k", None)):
                foreign.send(f"__kohort-region-region-{topic}", value, key)
        produce(address, topic, PARTITIONS, 200, first=200)
        eventually(lambda: visible(tmp_path) == 400, "it goes on")
    assert one.error is None


def test_a10_starts_are_chosen_once(address: str, topic: str, tmp_path: Path) -> None:
    """A partition that nobody has delivered from starts where the first owner found it."""
    produce(address, topic, PARTITIONS, 100)
    with running(worker(address, topic, ParquetDirectory(tmp_path), start="latest")) as (one,):
        eventually(lambda: one.owned == PARTITIONS and one.completed > 0, "it has begun")
    produce(address, topic, PARTITIONS, 100, first=100)
    with running(worker(address, topic, ParquetDirectory(tmp_path), start="latest")) as (one,):
        eventually(lambda: rows(tmp_path) == 100, "what came while nobody ran is there, no more")
    assert one.error is None


def test_bad_arguments_are_refused_at_once(tmp_path: Path) -> None:
    sink = ParquetDirectory(tmp_path)
    for settings, said in (
        ({"mode": "sometimes"}, "mode must be"),
        ({"rebalance": "never"}, "rebalance must be"),
        ({"enable_auto_commit": True}, "enable_auto_commit cannot be set"),
        ({"start": "yesterday"}, "start must be"),
        ({"pattern": "t.*"}, "give either topics or a pattern"),
        ({"group_idd": "x"}, "group_idd"),
        ({"period_ms": 0}, "period_ms"),
        ({"max_poll_interval_ms": 89_999}, "must be at least 90000, three times the longer"),
    ):
        with pytest.raises((ConfigError, ValueError, TypeError), match=said):
            worker("127.0.0.1:1", "t", sink, **settings)
    with pytest.raises(ValueError, match="not a directory of a file system"):
        ParquetDirectory("s3://bucket/x")


def test_a7_partitions_cannot_be_assigned_by_hand(tmp_path: Path) -> None:
    """The original's control port assigned them; in a region the group does, and it alone."""
    by_hand, sink = TopicPartition("t", 0), ParquetDirectory(tmp_path)
    with pytest.raises(ConfigError, match="cannot be assigned manually: the group of a region"):
        worker("127.0.0.1:1", cast("str", by_hand), sink)
    made = worker("127.0.0.1:1", "t", sink)
    for control in ("assign", "seek", "subscribe", "pause"):
        assert not hasattr(made, control)


def test_a_worker_runs_once(address: str, topic: str, tmp_path: Path) -> None:
    with running(worker(address, topic, ParquetDirectory(tmp_path))) as (one,):
        eventually(lambda: one.owned == PARTITIONS, "it works")
        with pytest.raises(LocalProtocolError, match="runs once"):
            one.worker.run()


def test_a_control_topic_that_is_deleted_ends_its_operators(
    address: str, topic: str, tmp_path: Path
) -> None:
    with running(worker(address, topic, ParquetDirectory(tmp_path))) as (one,):
        eventually(lambda: one.owned == PARTITIONS, "it works")
        with AdminClient(bootstrap_servers=address) as admin:
            admin.delete_topics([f"__kohort-region-region-{topic}"])
            eventually(lambda: one.is_over, "it has ended")
            assert f"__kohort-region-region-{topic}" not in admin.list_topics()
    assert isinstance(one.error, ControlTopicError)
    assert f"__kohort-region-region-{topic} was deleted" in str(one.error)
    assert "Start a region of another name" in str(one.error)


def test_a_control_topic_that_is_made_anew_ends_its_operators(
    address: str, topic: str, tmp_path: Path
) -> None:
    control = f"__kohort-region-region-{topic}"
    with running(worker(address, topic, ParquetDirectory(tmp_path))) as (one,):
        eventually(lambda: one.owned == PARTITIONS, "it works")
        with AdminClient(bootstrap_servers=address) as admin:
            admin.delete_topics([control])
            admin.create_topics([NewTopic(control, 1)])
        eventually(lambda: one.is_over, "it has ended")
    assert isinstance(one.error, ControlTopicError)
    assert "deleted" in str(one.error)
    error = error_of(address, topic, tmp_path)
    assert isinstance(error, ControlTopicError)
    assert "If the region worked before, the topic was deleted" in str(error)


def test_configs_of_the_control_topic(address: str, topic: str, tmp_path: Path) -> None:
    with running(worker(address, topic, ParquetDirectory(tmp_path))) as (one,):
        eventually(lambda: one.owned == PARTITIONS, "it works")
    resource = ConfigResource("topic", f"__kohort-region-region-{topic}")
    with AdminClient(bootstrap_servers=address) as admin:
        assert admin.describe_configs([resource])[resource]["cleanup.policy"].value == "compact"
