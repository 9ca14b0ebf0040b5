"""What a query refuses to commit, by what the application's listener says; on both brokers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kohort.spark.completion import batch_done
from kohort.spark.completion.control import LISTENING, BatchDone, application_directory, notify
from kohort.spark.completion.sinks import REFUSED, SinkError, directory_digest
from kohort.spark.source import exclusive
from kohort.spark.source.exclusive import ExclusiveGroupError
from tests.spark.brokers import bootstrap
from tests.spark.conftest import Start
from tests.spark.playing import PlayedQuery, committed, describe, produce
from tests.spark.sessions import PATIENCE_S, until

__all__ = ["bootstrap"]

pytestmark = pytest.mark.timeout(400)

TEN = dict.fromkeys(range(4), 10)
ZERO = dict.fromkeys(range(4), 0)
OUT = directory_digest("file:/out")


@pytest.fixture
def listener() -> Iterator[Path]:
    """The mark of `kohort.spark.install`: queries wait for words."""
    application = application_directory(os.getppid())
    (application / LISTENING).touch()
    yield application
    (application / LISTENING).unlink()


def tell(
    query: PlayedQuery,
    *,
    is_stateful: bool = False,
    sink: str = "",
    refusal: str = "",
    checkpoint: str = "",
) -> None:
    """Say what the listener says when the query's open batch is over."""
    assert query.open is not None
    word = BatchDone("run", query.open["batch"], query.open, is_stateful, sink, refusal, checkpoint)
    notify([query.reader.driver._control.directory], word)


def first_batch(query: PlayedQuery) -> PlayedQuery:
    """Run a query's first batch, of which nothing is said yet."""
    assert query.offer()
    query.write()
    return query


def test_a_skipped_batch_is_not_committed_and_its_restart_reads_it_again(
    bootstrap: str, topic: str, start: Start, listener: Path
) -> None:
    produce(bootstrap, topic, TEN)
    query = first_batch(start())
    tell(query, sink=OUT, refusal="the sink has skipped it")
    with pytest.raises(SinkError, match="the sink has skipped it"):
        query.offer()
    query.reader.stop()
    assert committed(bootstrap, topic, range(4)) == ZERO
    again = start(query.last)  # Spark's log says that the batch is over
    assert again.offer()
    assert len(again.write()) == 40
    tell(again, sink=directory_digest("file:/new"))
    assert not again.offer()
    assert committed(bootstrap, topic, range(4)) == TEN


def test_a_repeated_batch_that_is_skipped_is_read_again_after_a_restart(
    bootstrap: str, topic: str, start: Start, listener: Path
) -> None:
    produce(bootstrap, topic, TEN)
    killed = first_batch(start())
    killed.reader.stop()
    query = start(killed.last)
    query.open = killed.open
    query.write()
    tell(query, sink=OUT, refusal="the sink has skipped it")
    with pytest.raises(SinkError):
        query.offer()
    query.reader.stop()
    assert committed(bootstrap, topic, range(4)) == ZERO
    again = start(query.last)
    assert again.offer()
    assert len(again.write()) == 40


def test_a_refused_batch_without_a_group_is_refused_until_somebody_decides(
    bootstrap: str, topic: str, start: Start, listener: Path, tmp_path: Path
) -> None:
    """No group takes note of it, so the checkpoint does."""
    alone = {"groupMode": "none", "kafka__group__id": ""}
    checkpoint = f"file:{tmp_path}/hour=10%3A00"
    (tmp_path / "hour=10%3A00").mkdir()
    produce(bootstrap, topic, TEN)
    query = first_batch(start(**alone))
    tell(query, sink=OUT, refusal="the sink has skipped it", checkpoint=checkpoint)
    with pytest.raises(SinkError, match="the sink has skipped it"):
        query.offer()
    query.reader.stop()
    for _ in range(2):
        produce(bootstrap, topic, TEN)
        query = first_batch(start(query.open or query.last, **alone))
        tell(query, sink=OUT, checkpoint=checkpoint)
        with pytest.raises(SinkError, match=r"earlier run .*the sink has skipped it"):
            query.offer()
        query.reader.stop()
    (tmp_path / "hour=10%3A00" / REFUSED).unlink()
    again = start(query.open, **alone)
    produce(bootstrap, topic, TEN)
    first_batch(again)
    tell(again, sink=OUT, checkpoint=checkpoint)
    assert not again.offer()


def test_a_refused_member_leaves_before_sparks_next_trigger(
    bootstrap: str, topic: str, start: Start, listener: Path
) -> None:
    produce(bootstrap, topic, TEN)
    query = first_batch(start())
    tell(query, sink=OUT, refusal="the sink has skipped it")
    member = query.reader.driver._member._thread
    member.join(PATIENCE_S)
    assert not member.is_alive()
    with pytest.raises(SinkError):
        query.offer()
    assert committed(bootstrap, topic, range(4)) == ZERO


def test_two_members_with_one_directory_are_found_by_their_commits(
    bootstrap: str, topic: str, start: Start
) -> None:
    """Applications that begin together: neither finds a list that is older than its batch."""
    north, south = start(), start(kafka__client__id="south")
    while not (is_half(north) and is_half(south)):
        north.offer()
        south.offer()
    produce(bootstrap, topic, TEN)
    for query in (north, south):
        until(query.offer, "a batch")
        query.write()
        tell(query, sink=OUT)
    north.offer()
    with pytest.raises(SinkError, match=r"query north, also a member .* directory of its own"):
        south.offer()
    assert sum(committed(bootstrap, topic, range(4)).values()) == 20


def is_half(query: PlayedQuery) -> bool:
    """Whether the query has its share of the partitions, and nothing is on its way."""
    member = query.reader.driver._member
    return len(member.owned()) == 2 and member.settle(0)


def join(start: Start, bootstrap: str, topic: str) -> PlayedQuery:
    """A member that gets in although it should not: nobody had said so when it looked."""
    late = start(kafka__client__id="south")
    late.reader.driver._member.start()
    until(lambda: len(describe(bootstrap, topic).members) == 2, "a second member")
    return late


def test_a_query_that_keeps_state_and_is_not_alone_fails_before_its_first_commit(
    bootstrap: str, topic: str, start: Start, listener: Path
) -> None:
    produce(bootstrap, topic, TEN)
    north = first_batch(start())
    join(start, bootstrap, topic)
    tell(north, is_stateful=True)
    with pytest.raises(ExclusiveGroupError, match=r"keeps state.*each would count only its own"):
        north.offer()
    assert committed(bootstrap, topic, range(4)) == ZERO


def test_a_query_that_keeps_state_is_marked_and_fails_when_somebody_gets_in(
    bootstrap: str, topic: str, start: Start, listener: Path
) -> None:
    produce(bootstrap, topic, TEN)
    north = first_batch(start())
    tell(north, is_stateful=True)
    assert not north.offer()
    assert committed(bootstrap, topic, range(4)) == TEN
    with pytest.raises(ExclusiveGroupError, match="query north must be alone"):
        start(kafka__client__id="west").offer()
    late = join(start, bootstrap, topic)
    until(lambda: bool(late.reader.driver._member.owned()), "partitions")
    with pytest.raises(ExclusiveGroupError, match="must be alone"):
        north.offer()


UNSEEN = {"checkpointLocation": ""}


def refusal(query: PlayedQuery) -> SinkError:
    """Trigger until the query is refused."""
    refused: list[SinkError] = []

    def is_refused() -> bool:
        try:
            query.offer()
        except SinkError as error:
            refused.append(error)
        return bool(refused)

    until(is_refused, "a refusal")
    return refused[0]


def test_a_query_whose_sink_is_not_seen_does_not_join_others(
    bootstrap: str, topic: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exclusive, "LEAVING_S", 0.0)
    produce(bootstrap, topic, TEN)
    north = start(**UNSEEN)
    north.run_until(40)
    with pytest.raises(SinkError, match=r"south would share .* north on .*install\(spark\)"):
        start(kafka__client__id="south", **UNSEEN).offer()
    produce(bootstrap, topic, TEN)
    north.run_until(80)
    assert committed(bootstrap, topic, range(4)) == dict.fromkeys(range(4), 20)


def test_a_query_whose_sink_is_not_seen_ends_between_batches_when_another_comes(
    bootstrap: str, topic: str, start: Start
) -> None:
    """What it has read when it was alone is committed: none of it is read again."""
    produce(bootstrap, topic, TEN)
    north = first_batch(start(**UNSEEN))
    join(start, bootstrap, topic)
    assert "north would share" in str(refusal(north))
    assert committed(bootstrap, topic, range(4)) == TEN


def test_a_batch_of_which_nothing_is_heard_is_not_committed_beside_others(
    bootstrap: str, topic: str, start: Start, listener: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listener is one of another session: what the sink has made of the batch is not known."""
    monkeypatch.setattr(batch_done, "MESSAGE_WAIT_S", 0.1)
    produce(bootstrap, topic, TEN)
    north, south = first_batch(start(**UNSEEN)), start(kafka__client__id="south")
    tell(north, sink=OUT)
    while not (is_half(north) and is_half(south)):
        north.offer()
        south.offer()
    produce(bootstrap, topic, TEN)
    until(north.offer, "a batch")
    read = {partition for partition, _ in north.write()}
    assert "south" in str(refusal(north))
    north.reader.stop()
    assert committed(bootstrap, topic, read) == dict.fromkeys(read, 10)
    south.reader.stop()
    again = start(north.last)  # Spark's log says that the batch is over

    def has_read_it_again() -> bool:
        return again.offer() and bool(again.write()) and {each for each, _ in again.sink} >= read

    until(has_read_it_again, "what was not committed")


def test_a_query_that_restarts_waits_for_its_own_killed_member(
    bootstrap: str, topic: str, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    produce(bootstrap, topic, TEN)
    north = start(**UNSEEN)
    north.run_until(40)
    north.reader.stop()
    killed = start()
    killed.offer()
    again = start(north.last, **UNSEEN)
    with ThreadPoolExecutor(1) as pool:
        offered = pool.submit(again.offer)
        until(lambda: "cannot share group" in caplog.text or offered.done(), "a warning")
        assert not offered.done()
        killed.reader.stop()
        assert not offered.result(PATIENCE_S)
    assert again.reader.driver._member.owned()
