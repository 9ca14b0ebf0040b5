"""A query was killed in an open batch, and the group was moved before it starts again."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from kohort import AdminClient, OffsetAndMetadata, TopicPartition
from kohort.spark.source.group_offsets import Note
from kohort.spark.source.position_resolver import PositionConflictError
from tests.spark.brokers import bootstrap
from tests.spark.conftest import Start
from tests.spark.playing import PlayedQuery, Row, produce, set_group

__all__ = ["bootstrap"]

# Each partition has 30 records; the first ten are finished, the next ten are the open batch.
END, OPENED, RECORDS = 10, 20, 30
# Where the group is then: before the batch, at its start, in its middle, and beyond its end.
MOVED = {0: 4, 1: END, 2: 15, 3: 25}
POLICIES = [None, "group", "checkpoint", "fail"]
# The rules do not depend on how the group agrees.
one_protocol = pytest.mark.parametrize("start", ["consumer"], indirect=True)


def killed(bootstrap: str, topic: str, start: Start) -> PlayedQuery:
    """A query that has stopped with an open batch."""
    everything = dict.fromkeys(MOVED, END)
    produce(bootstrap, topic, everything)
    query = start()
    query.run_until(len(MOVED) * END)
    produce(bootstrap, topic, everything)
    while query.open is None:
        query.offer(ReadMaxRows(len(MOVED) * END))
    query.reader.stop()
    produce(bootstrap, topic, everything)
    return query


def move(bootstrap: str, topic: str, committer: str) -> None:
    """Move the group as an operator does, or as another query that has finished those records."""
    if committer == "operator":
        set_group(bootstrap, topic, {p: at for p, at in MOVED.items() if at != END})
        return
    note = Note(operator="south", nonce="theirs", batch=7, epoch=5, count=4, began=1).to_text()
    moved = {
        TopicPartition(topic, p): OffsetAndMetadata(at, note)
        for p, at in MOVED.items()
        if at != END
    }
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        admin.alter_group_offsets(moved, group_id=f"group-of-{topic}")


def again(start: Start, query: PlayedQuery, policy: str | None) -> PlayedQuery:
    """The next run, which Spark has repeat the open batch."""
    found = start(query.last, **({} if policy is None else {"positions": policy}))
    found.open = query.open
    return found


def expected(policy: str | None) -> Counter[Row]:
    """Every record from the right start on, once; the open batch is run again as it was logged."""
    rows: Counter[Row] = Counter()
    for partition, at in MOVED.items():
        first = END if policy == "checkpoint" else max(at, END)
        rows.update((partition, offset) for offset in range(first, RECORDS))
        if policy != "checkpoint" and at < END:
            rows.update((partition, offset) for offset in range(at, OPENED))
    return rows


@one_protocol
@pytest.mark.parametrize("committer", ["operator", "another query"])
@pytest.mark.parametrize("policy", [None, "group", "checkpoint"])
def test_each_record_is_read_from_where_the_policy_says(
    bootstrap: str,
    topic: str,
    start: Start,
    caplog: pytest.LogCaptureFixture,
    committer: str,
    policy: str | None,
) -> None:
    query = killed(bootstrap, topic, start)
    move(bootstrap, topic, committer)
    caplog.clear()
    last = again(start, query, policy)
    last.write()
    wanted = expected(policy)
    last.run_until(wanted.total())
    assert Counter(last.sink) == wanted
    said = [each.message for each in caplog.records if each.levelname == "WARNING"]
    about = {number: [s for s in said if f"{topic}-{number}: " in s] for number in MOVED}
    if policy is not None:
        assert not any(about.values())
        return
    assert not about[1]
    (before,) = about[0]
    assert f"this query's checkpoint ends at {END}: reading again from 4" in before
    if committer == "another query":
        assert not about[2]  # as members do all the time
        assert not about[3]
        return
    for number, end in ((2, 14), (3, 24)):
        (ahead,) = about[number]
        assert f"has committed offset {MOVED[number]} for the group" in ahead
        assert f"does not read offsets {END} to {end} again (positions=checkpoint does)" in ahead


@one_protocol
@pytest.mark.parametrize("committer", ["operator", "another query"])
def test_positions_fail_asks_before_anything_is_read(
    bootstrap: str, topic: str, start: Start, committer: str
) -> None:
    query = killed(bootstrap, topic, start)
    move(bootstrap, topic, committer)
    last = again(start, query, "fail")
    with pytest.raises(PositionConflictError, match="disagree in 3 of the partitions") as refused:
        last.write()
    for said in (
        "positions=group reads offsets 4 to 9 again, positions=checkpoint skips them",
        "positions=checkpoint reads offsets 10 to 14 again, positions=group skips them",
        "positions=checkpoint reads offsets 10 to 24 again, positions=group skips them",
    ):
        assert said in str(refused.value)


@one_protocol
@pytest.mark.parametrize("policy", POLICIES)
def test_a_lost_commit_is_no_conflict(
    bootstrap: str, topic: str, start: Start, caplog: pytest.LogCaptureFixture, policy: str | None
) -> None:
    """Killed in the open batch, and once more when it was finished and not yet committed."""
    query = killed(bootstrap, topic, start)
    caplog.clear()
    second = again(start, query, policy)
    assert len(second.write()) == len(MOVED) * (OPENED - END)
    second.reader.stop()
    third = start(second.open, **({} if policy is None else {"positions": policy}))
    first = END if policy == "group" else OPENED
    third.run_until(len(MOVED) * (RECORDS - first))
    assert Counter(third.sink) == Counter((p, o) for p in MOVED for o in range(first, RECORDS))
    said = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert not [each for each in said if topic in each]


@one_protocol
@pytest.mark.parametrize("policy", POLICIES)
def test_what_this_run_has_read_is_not_read_again(
    bootstrap: str, topic: str, start: Start, policy: str | None
) -> None:
    query = killed(bootstrap, topic, start)
    last = again(start, query, policy)
    last.write()
    last.run_until(len(MOVED) * (RECORDS - END))
    assert Counter(last.sink) == Counter((p, o) for p in MOVED for o in range(END, RECORDS))
