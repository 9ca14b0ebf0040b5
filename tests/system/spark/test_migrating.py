"""What `kohort spark` refuses, what it leaves alone, and what it makes of the corners of a log."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from kohort.client import AdminClient, Consumer
from kohort.spark.checkpoint.convert import Conversion
from kohort.spark.checkpoint.files import CheckpointFiles
from kohort.spark.checkpoint.history import INITIAL, initial_text, read_history
from kohort.spark.checkpoint.log import CheckpointError
from kohort.spark.checkpoint.manifest import Manifest
from kohort.spark.checkpoint.migrate import Kafka, Move, export_checkpoint, write_moved
from kohort.spark.source.group_offsets import Note, Topic
from kohort.spark.source.start_positions import Policy
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.values import replace
from tests.spark.moving import converted, kohort, refused
from tests.spark.playing import PlayedQuery, committed, options, produce

HEAD = '{"batchWatermarkMs":0,"batchTimestampMs":1795476112501,"conf":{}}'
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


class Written:
    """A checkpoint written by hand, in Spark's format."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("metadata", '{"id":"c344a2fd-71fd-4dd9-aabb-9ac5ddf31cb2"}')

    def write(self, name: str, text: str) -> None:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def batch(self, number: int, *offsets: object, version: str = "v1", over: bool = True) -> None:
        lines = [each if isinstance(each, str) else json.dumps(each) for each in offsets]
        self.write(f"offsets/{number}", "\n".join([version, HEAD, *lines]))
        if over:
            self.write(f"commits/{number}", COMMIT)

    def contents(self) -> dict[str, bytes]:
        files = (file for file in self.folder.rglob("*") if file.is_file())
        return {str(file.relative_to(self.folder)): file.read_bytes() for file in files}

    def line(self, number: int) -> str:
        return (self.folder / f"offsets/{number}").read_text().split("\n")[2]


@pytest.fixture
def old(tmp_path: Path, topic: str, bootstrap: str) -> Written:
    """A checkpoint of Spark's own source that has finished batches 0 and 1."""
    produce(bootstrap, topic, {0: 10, 1: 10, 2: 10, 3: 10})
    written = Written(tmp_path / "old checkpoint")
    written.write(INITIAL, initial_text({TopicPartition(topic, p): 0 for p in range(4)}))
    written.batch(0, {topic: {"0": 3, "1": 3, "2": 3, "3": 3}})
    written.batch(1, {topic: {"0": 5, "1": 6, "2": 7, "3": 8}})
    return written


@pytest.fixture
def new(tmp_path: Path) -> Written:
    return Written(tmp_path / "new")


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(tmp_path / "copy")


@pytest.fixture
def where(bootstrap: str, topic: str) -> tuple[str, ...]:
    return ("-b", bootstrap, "--group", f"group-of-{topic}", "--quiet-seconds", "0")


def to_kohort(old: Written, target: str, *where: str) -> Written:
    converted("import-checkpoint", str(old.folder), target, *where)
    copy = object.__new__(Written)
    copy.folder = Path(target)
    return copy


# -------------------------------------------------------------------------------- what is converted


def test_a_copy_leaves_the_original_alone_and_has_all_of_its_files(
    old: Written, target: str, where: tuple[str, ...], bootstrap: str, topic: str
) -> None:
    old.write("state/0/0/1.delta", "state")
    old.write("offsets/.1.crc", "a checksum of Hadoop's")
    before = old.contents()
    copy = to_kohort(old, target, *where)
    assert old.contents() == before
    after = copy.contents()
    assert before.keys() - after.keys() == {"offsets/.1.crc"}  # of a file that is another one now
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"offsets/0", "offsets/1"}
    manifest = Manifest.from_json(json.loads(copy.line(1)))
    assert manifest.ranges[TopicPartition(topic, 3)] == (3, 8)
    assert Manifest.from_json(json.loads(copy.line(0))).ranges[TopicPartition(topic, 3)] == (0, 3)
    assert manifest.topics[topic].count == 4
    assert manifest.topics[topic].topic_id
    assert committed(bootstrap, topic, range(4)) == {0: 5, 1: 6, 2: 7, 3: 8}


def test_the_log_with_names_of_sources(old: Written, target: str, where: tuple[str, ...]) -> None:
    """Since Spark 4.1, with spark.sql.streaming.offsetLog.formatVersion=2."""
    for number in (0, 1):
        old.batch(number, "0:" + old.line(number), version="v2")
    copy = to_kohort(old, target, *where)
    assert copy.line(1).startswith('0:{"batch": 2')


def test_a_checkpoint_that_is_changed_in_place_is_kept_beside_it(
    old: Written, where: tuple[str, ...]
) -> None:
    before = old.contents()
    moved = converted("import-checkpoint", str(old.folder), "--in-place", *where)
    assert moved["checkpoint"] == str(old.folder)
    backup = object.__new__(Written)
    backup.folder = Path(moved["backup"])
    assert backup.contents() == before
    assert "nonce" in old.line(1)


def test_the_position_of_a_group_counts_on_the_way_back(
    old: Written, tmp_path: Path, where: tuple[str, ...], bootstrap: str, topic: str
) -> None:
    """The others of the group have read their parts: their offsets are in Kafka only."""
    manifest = Manifest(
        3, "north", {TopicPartition(topic, 0): (3, 5)}, 7, "ab12", {topic: Topic("", 4)}
    )
    ours = Written(tmp_path / "ours")
    ours.batch(6, manifest.to_json())
    _commit(bootstrap, topic, {0: 5, 1: 9, 2: 4, 3: 2})
    moved = converted("export-checkpoint", str(ours.folder), str(tmp_path / "spark"), *where)
    assert moved["offsets"] == {topic: {"0": 5, "1": 9, "2": 4, "3": 2}}
    copy = read_history("copy", CheckpointFiles(moved["checkpoint"]).store)
    assert (copy.origin, copy.finished) == ("spark", 6)
    assert copy.offsets(5) == copy.offsets(6) == copy.initial  # Spark asks for the one before


def test_a_query_without_a_group_needs_none(
    old: Written, tmp_path: Path, bootstrap: str, topic: str
) -> None:
    where = ("-b", bootstrap, "--quiet-seconds", "0")
    copy = to_kohort(old, str(tmp_path / "ours"), *where)
    moved = converted("export-checkpoint", str(copy.folder), str(tmp_path / "back"), *where)
    assert moved["offsets"] == {topic: {"0": 5, "1": 6, "2": 7, "3": 8}}
    assert committed(bootstrap, topic, [0]) == {0: -1001}


def test_what_was_imported_is_read_by_a_query_of_one_more_partition(
    old: Written, target: str, where: tuple[str, ...], bootstrap: str, topic: str
) -> None:
    """Spark's own source knew three of the four partitions: the fourth is read from its start."""
    for number in (0, 1):
        offsets = json.loads(old.line(number))
        del offsets[topic]["3"]
        old.batch(number, offsets)
    copy = to_kohort(old, target, *where)
    settings = options(bootstrap, topic, startingOffsets="latest")
    query = PlayedQuery(settings, json.loads(copy.line(1)))
    try:
        query.run_until(5 + 4 + 3 + 10)
    finally:
        query.reader.stop()
    assert sorted(row for row in query.sink if row[0] == 3) == [(3, at) for at in range(10)]


# ---------------------------------------------------------------------------------- what is refused


def test_a_group_with_members_is_refused(
    old: Written, target: str, where: tuple[str, ...], bootstrap: str, topic: str
) -> None:
    with Consumer(
        topic, bootstrap_servers=bootstrap, group_id=f"group-of-{topic}", client_id="south"
    ) as member:
        while not member.assignment():
            member.poll(50)
        told = refused("import-checkpoint", str(old.folder), target, *where)
    assert "has 1 members (south): stop all its queries first" in told
    assert not Path(target).exists()


def test_a_query_that_writes_meanwhile_is_refused(
    old: Written, target: str, bootstrap: str, topic: str
) -> None:
    """It writes as soon as the command has looked, and goes on until it is found out."""
    done = threading.Event()

    def run() -> None:
        number = 2
        while not done.is_set():
            old.batch(number, json.loads(old.line(1)))
            number += 1
            done.wait(0.01)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        told = refused("import-checkpoint", str(old.folder), target, "-b", bootstrap)
    finally:
        done.set()
        thread.join()
    assert "the query of" in told
    assert "is running: it has just written" in told
    assert not Path(target).exists()


def test_an_old_checkpoint_is_not_waited_for(old: Written) -> None:
    for file in (old.folder / "offsets", old.folder / "commits"):
        for each in file.iterdir():
            os.utime(each, (1_700_000_000, 1_700_000_000))
    assert len(CheckpointFiles(str(old.folder)).watch(10_000)) == 4


def test_group_offsets_that_are_elsewhere_are_not_replaced(
    old: Written, target: str, where: tuple[str, ...], bootstrap: str, topic: str
) -> None:
    _commit(bootstrap, topic, {1: 9})
    told = refused("import-checkpoint", str(old.folder), target, *where)
    assert f"such as 9 for {topic}-1, where the checkpoint has 6" in told
    assert not Path(target).exists()
    to_kohort(old, target, *where, "--reset-offsets")
    assert committed(bootstrap, topic, [1]) == {1: 6}


def test_nothing_is_overwritten(old: Written, new: Written, where: tuple[str, ...]) -> None:
    before = new.contents()
    told = refused("import-checkpoint", str(old.folder), str(new.folder), *where)
    assert "is not empty" in told
    assert new.contents() == before
    within = str(old.folder / "copy")
    assert "overlaps" in refused("import-checkpoint", str(old.folder), within, *where)
    assert "or --in-place" in refused("import-checkpoint", str(old.folder), *where)


@pytest.mark.parametrize(("change", "why"), [
    (lambda c: c.batch(1, {"a": {"0": 1}}, {"a": {"0": 1}}), "offsets/1 has 2 sources"),
    (lambda c: c.batch(1), "offsets/1 has 0 sources"),
    (lambda c: c.batch(1, {"logOffset": 3}), "another source than Kafka"),
    (lambda c: c.batch(1, "-"), "has returned no offset yet"),
    (lambda c: c.batch(1, "not JSON"), "not the offset of a Kafka source"),
    (lambda c: c.batch(1, {"a": {"0": 1}}, version="v9"), "offsets/1 begins with 'v9'"),
    (lambda c: c.write("commits/1", "v9\n{}"), "commits/1 begins with 'v9'"),
    (lambda c: c.write(INITIAL, "\0v9\n{}"), "sources/0/0 begins with 'v9'"),
    (lambda c: c.write("offsets/1", ""), "offsets/1 begins with ''"),
    (lambda c: c.write("commits/2", COMMIT), "batch 2 is in commits and not in offsets"),
    (lambda c: [c.batch(n, {"a": {"0": 1}}, over=False) for n in (2, 3)], "asyncProgressTracking"),
    (lambda c: c.batch(2, Manifest(1, "n").to_json()), "batches of two sources"),
])  # fmt: skip
def test_what_cannot_be_understood_is_refused(new: Written, change: Any, why: str) -> None:
    new.batch(0, {"a": {"0": 1}})
    new.batch(1, {"a": {"0": 2}})
    change(new)
    with pytest.raises(CheckpointError) as error:
        read_history("here", CheckpointFiles(str(new.folder)).store)
    assert why in str(error.value)


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path: Path, where: tuple[str, ...]) -> None:
    told = refused("import-checkpoint", str(tmp_path / "nothing"), str(tmp_path / "x"), *where)
    assert "give the checkpointLocation of a query" in told


@pytest.mark.parametrize(("offsets", "why"), [
    ({"0": 99}, "ends at 10: the topic was deleted and recreated"),
    ({"7": 1}, "has 4 partitions: it was deleted and recreated"),
])  # fmt: skip
def test_offsets_of_another_topic_are_refused(
    old: Written,
    target: str,
    where: tuple[str, ...],
    topic: str,
    offsets: dict[str, int],
    why: str,
) -> None:
    old.batch(1, {topic: offsets})
    assert why in refused("import-checkpoint", str(old.folder), target, *where)
    assert not Path(target).exists()


def test_a_topic_that_is_gone_or_made_anew_is_refused(
    old: Written, target: str, where: tuple[str, ...], new: Written, topic: str
) -> None:
    old.batch(1, {"no-such-topic": {"0": 1}})
    assert "does not exist" in refused("import-checkpoint", str(old.folder), target, *where)
    ranges = {TopicPartition(topic, 0): (0, 5)}
    other = {topic: Topic("5c1b7e1e-0000-4000-8000-000000000001", 4)}
    new.batch(0, Manifest(1, "north", ranges, 1, "ab", other).to_json())
    told = refused("export-checkpoint", str(new.folder), target, *where)
    assert "was deleted and recreated" in told


def test_the_wrong_way_round_is_refused(
    old: Written, new: Written, target: str, where: tuple[str, ...]
) -> None:
    told = refused("export-checkpoint", str(old.folder), target, *where)
    assert "is kohort spark import-checkpoint" in told
    new.batch(0, Manifest(1, "north").to_json())
    told = refused("import-checkpoint", str(new.folder), target, *where)
    assert "is kohort spark export-checkpoint" in told


def test_a_group_that_was_set_back_is_asked_about(
    new: Written, target: str, where: tuple[str, ...], bootstrap: str, topic: str
) -> None:
    produce(bootstrap, topic, {0: 10})
    ranges = {TopicPartition(topic, 0): (3, 5)}
    new.batch(0, Manifest(2, "north", ranges, 1, "ab12", {topic: Topic("", 1)}).to_json())
    _commit(bootstrap, topic, {0: 1, 1: 0, 2: 0, 3: 0})
    arguments = ("export-checkpoint", str(new.folder), target, *where)
    assert "choose --positions group or --positions checkpoint" in refused(*arguments)
    moved = converted(*arguments, "--positions", "checkpoint")
    assert moved["offsets"][topic]["0"] == 5


def test_a_member_without_its_group_is_refused(
    new: Written, target: str, bootstrap: str, topic: str
) -> None:
    new.batch(0, Manifest(2, "north", {TopicPartition(topic, 0): (3, 5)}, 1, "ab").to_json())
    told = refused("export-checkpoint", str(new.folder), target, "-b", bootstrap)
    assert "name the group with --group" in told
    told = refused("export-offsets", "--checkpoint", str(new.folder))
    assert "give --bootstrap-servers" in told


def test_an_open_batch_that_the_group_has_finished_in_part(
    new: Written, target: str, where: tuple[str, ...], bootstrap: str, topic: str
) -> None:
    """Another member has taken partition 1 over; only the rest is repeated."""
    produce(bootstrap, topic, {0: 10, 1: 10})
    names = [TopicPartition(topic, number) for number in (0, 1)]
    for number, over in ((0, True), (1, False)):
        ranges = dict.fromkeys(names, (4 * number, 4 * number + 4))
        topics = {topic: Topic("", 4)}
        manifest = Manifest(2, "north", ranges, number + 1, "ab", topics)
        new.batch(number, manifest.to_json(), over=over)
    _commit(bootstrap, topic, {0: 4, 1: 8, 2: 0, 3: 0})
    arguments = ("export-checkpoint", str(new.folder), target, *where)
    moved = converted(*arguments, "--open-batch", "repeat")
    copy = read_history("copy", CheckpointFiles(moved["checkpoint"]).store)
    first, last = copy.offsets(0), copy.offsets(1)
    assert [(first[name], last[name]) for name in names] == [(4, 8), (8, 8)]
    assert first.keys() == last.keys()


def test_an_offset_that_the_checkpoint_lacks_is_told(
    old: Written, target: str, where: tuple[str, ...], bootstrap: str, topic: str
) -> None:
    for number, ends in ((0, (3, 3, 3)), (1, (5, 6, 7))):
        old.batch(number, {topic: {str(each): end for each, end in enumerate(ends)}})
    _commit(bootstrap, topic, {3: 9})
    (warning,) = converted("import-checkpoint", str(old.folder), target, *where)["warnings"]
    assert f"does not have {topic}-3, and the group has offset 9 for it" in warning


@pytest.mark.parametrize(
    ("epoch", "note", "positions", "at"),
    [
        (
            -1,
            Note(operator="north", nonce="ab", batch=9),
            None,
            [4, 0],
        ),  # only commits: as the query does
        (3, Note(operator="north", nonce="ab", batch=9), None, [8, 7]),
        (3, Note(operator="north", nonce="ab", batch=9), "checkpoint", [4, 0]),
        (3, Note(operator="north", nonce="ab", batch=9, exclusive=True), None, [4, 0]),
        (
            3,
            Note(operator="south", nonce="cd", batch=9),
            "checkpoint",
            [4, 7],
        ),  # a sibling's partition
    ],
)
def test_an_older_copy_is_exported_as_its_query_would_start(
    new: Written,
    target: str,
    bootstrap: str,
    topic: str,
    epoch: int,
    note: Note,
    positions: Policy,
    at: list[int],
) -> None:
    produce(bootstrap, topic, {0: 10, 1: 10})
    known = TopicPartition(topic, 0)
    manifest = Manifest(epoch, "north", {known: (0, 4)}, 1, "ab", {topic: Topic("", 4)})
    new.batch(0, manifest.to_json())
    group, noted = f"group-of-{topic}", note.to_text()
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        offsets = {0: 8, 1: 7, 2: 0, 3: 0}
        places = {TopicPartition(topic, p): OffsetAndMetadata(o, noted) for p, o in offsets.items()}
        admin.alter_group_offsets(places, group)
    move = Move(
        source=str(new.folder),
        target=target,
        bootstrap_servers=bootstrap,
        group_id=group,
        positions=positions,
        quiet_s=0,
    )
    found = export_checkpoint(move).offsets
    # A partition that is not in Spark's checkpoint is read from its beginning.
    assert [found.get(TopicPartition(topic, number), 0) for number in (0, 1)] == at


# --------------------------------------------------------------------------------------- to the end


def test_a_group_that_is_not_told_is_an_error_that_says_what_there_is(
    old: Written, target: str, bootstrap: str, topic: str
) -> None:
    """A member has joined while the files were copied."""
    group = f"group-of-{topic}"
    move = Move(source=str(old.folder), target=target, bootstrap_servers=bootstrap, group_id=group)
    files = CheckpointFiles(move.source)
    history = read_history(move.source, files.store)
    places = {TopicPartition(topic, 0): 5}
    with (
        Kafka(bootstrap, group, {}) as kafka,
        Consumer(topic, bootstrap_servers=bootstrap, group_id=group) as member,
    ):
        while not member.assignment():
            member.poll(50)

        def tell() -> None:
            kafka.tell(Conversion({}, places), {}, "ab", 1)

        with pytest.raises(CheckpointError, match=r"stop all its queries.*remove it before you"):
            write_moved(move, files, files.look(), history, Conversion({}, places), tell)
        move = replace(move, target=None)
        with pytest.raises(CheckpointError, match=r"put the original back from .*\.backup-"):
            write_moved(move, files, files.look(), history, Conversion({}, places), tell)


def test_a_place_that_cannot_be_written_is_one_line(
    old: Written, tmp_path: Path, where: tuple[str, ...]
) -> None:
    (tmp_path / "file").touch()
    told = refused("import-checkpoint", str(old.folder), str(tmp_path / "file" / "copy"), *where)
    assert "file/copy" in told


def test_offsets_are_exported_as_lists_of_all_partitions(
    bootstrap: str, topic: str, where: tuple[str, ...]
) -> None:
    _commit(bootstrap, topic, {0: 1, 2: 0})
    asked = ("export-offsets", *where[:4])
    assert f"no offset for {topic}-1 and 1 more" in refused(*asked)
    done = kohort(*asked, "--missing", "earliest")
    assert json.loads(done.stdout) == {topic: {"0": 1, "1": -2, "2": 0, "3": -2}}
    assert "has no offsets" in refused("export-offsets", "-b", bootstrap, "--group", "nobody")
    assert "give --checkpoint, or --group" in refused("export-offsets")


def test_offsets_of_an_open_batch_are_those_where_it_begins(old: Written, topic: str) -> None:
    old.batch(2, {topic: {"0": 9, "1": 9, "2": 9, "3": 9}}, over=False)
    done = kohort("export-offsets", "--checkpoint", str(old.folder))
    assert json.loads(done.stdout) == {topic: {"0": 5, "1": 6, "2": 7, "3": 8}}
    assert "warning: batch 2 is open" in done.stderr


def test_records_that_are_gone_are_told(
    new: Written, target: str, bootstrap: str, topic: str
) -> None:
    ranges = {TopicPartition(topic, 0): (0, 2)}
    new.batch(0, Manifest(-1, "north", ranges, 1, "ab").to_json())
    produce(bootstrap, topic, {0: 10})
    _delete_before(bootstrap, topic, 5)
    move = Move(source=str(new.folder), target=target, bootstrap_servers=bootstrap, quiet_s=0)
    (warning,) = export_checkpoint(move).warnings
    assert f"{topic}-0 begins at 5, and the query continues from 2" in warning


def _commit(bootstrap: str, topic: str, offsets: dict[int, int]) -> None:
    places = {TopicPartition(topic, number): at for number, at in offsets.items()}
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        admin.alter_group_offsets(places, f"group-of-{topic}")


def _delete_before(bootstrap: str, topic: str, offset: int) -> None:
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, 0): offset})
