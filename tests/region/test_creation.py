"""What keeps a region from being created."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kohort.client import AdminClient, Consumer
from kohort.client.admin.aio import AsyncAdminClient
from kohort.errors import ConfigError
from kohort.region import (
    DeltaSink,
    OperatorId,
    ParquetDirectory,
    RegionConsumer,
    RegionPartition,
    SinkError,
)
from kohort.region.candidate import Candidate
from kohort.region.errors import RegionError
from kohort.region.log.control import ControlLog
from kohort.region.sinks.delta import DeltaPublisher
from tests.region.regions import SCHEMA, eventually, produce, running, visible, worker


@pytest.mark.parametrize("name", ["", "a/b ../x", "caf\u00e9", "x" * 228])
def test_a_name_that_no_topic_can_have_is_refused_at_once(name: str, tmp_path: Path) -> None:
    sink = ParquetDirectory(tmp_path)
    with pytest.raises(ConfigError, match="name of a region"):
        RegionConsumer(name, "t", function=lambda *_: None, sink=sink, operator="one", group_id="g")
    with pytest.raises(ConfigError, match="name of a region"):
        Candidate(name, sink, {"group_id": "g"}, {})


def test_the_longest_name_is_accepted(tmp_path: Path) -> None:
    Candidate("x" * 227, ParquetDirectory(tmp_path), {}, {})


@pytest.fixture(params=["parquet", "delta"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> ParquetDirectory | DeltaSink:
    return ParquetDirectory(tmp_path) if request.param == "parquet" else DeltaSink(tmp_path, SCHEMA)


def shown(sink: ParquetDirectory | DeltaSink, path: Path) -> int:
    """Return how many rows a reader sees."""
    if isinstance(sink, ParquetDirectory):
        return visible(path)
    return DeltaTable(path).to_pyarrow_table().num_rows if DeltaTable.is_deltatable(path) else 0


def run_to_the_end(address: str, topic: str, sink: ParquetDirectory | DeltaSink, out: Path) -> None:
    produce(address, topic, 4, 100)
    with running(worker(address, topic, sink)) as (one,):
        eventually(lambda: shown(sink, out) == 100, "all is visible")
    assert one.error is None


def refused(*workers: RegionConsumer) -> str:
    """Return why a worker does not start."""
    with running(*workers) as (one,):
        one.join()
    assert isinstance(one.error, RegionError)
    return str(one.error)


def topics_of(address: str, region: str) -> set[str]:
    """Return the topics of a region that exist."""
    with AdminClient(bootstrap_servers=address) as admin:
        return {
            each for each in admin.list_topics() if each.startswith(f"__kohort-region-{region}")
        }


def test_the_output_of_a_region_of_another_name_is_refused(
    address: str, topic: str, sink: ParquetDirectory | DeltaSink, tmp_path: Path
) -> None:
    """The same group and topic: every record would be there twice."""
    run_to_the_end(address, topic, sink, tmp_path)
    text = refused(worker(address, topic, sink, region=f"typo-{topic}"))
    assert f"{tmp_path} holds the output of region 'region-{topic}'" in text
    assert f"this is region 'typo-{topic}'" in text
    assert "Give it the name of that region, or an output of its own" in text
    assert topics_of(address, f"typo-{topic}") == set()
    assert shown(sink, tmp_path) == 100


def test_a_region_whose_topics_were_deleted_needs_an_output_of_its_own(
    address: str, topic: str, sink: ParquetDirectory | DeltaSink, tmp_path: Path
) -> None:
    """Another name alone would write every record again."""
    run_to_the_end(address, topic, sink, tmp_path)
    own = topics_of(address, f"region-{topic}")
    with AdminClient(bootstrap_servers=address) as admin:
        admin.delete_topics(own)
    assert "start a region of another name, with an output of its own" in refused(
        worker(address, topic, sink)
    )
    assert topics_of(address, f"region-{topic}") == set()
    refused(worker(address, topic, sink, region=f"b-{topic}"))
    assert shown(sink, tmp_path) == 100


def test_a_table_knows_its_regions_after_its_log_was_cleaned_up(tmp_path: Path) -> None:
    one = OperatorId("one", "a")
    for number, name in enumerate(("a.b", "c"), 1):
        sink = DeltaSink(tmp_path, SCHEMA)
        sink.open(name, f"id-{name}", 0)
        writer = sink.writer(one, 1)
        writer.write(RegionPartition("t", "i", 0), [dict.fromkeys(SCHEMA.names, number)])
        sink.publish(1, {one: writer.prepare(1, 1)})
        if name == "a.b":
            DeltaTable(tmp_path).alter.set_table_properties({"delta.appendOnly": "true"})
            DeltaTable(tmp_path).create_checkpoint()
            for version in range(2):
                (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()
    assert DeltaSink(tmp_path, SCHEMA).regions() == ({"a.b", "c"}, str(tmp_path))
    assert DeltaSink(tmp_path / "none", SCHEMA).regions()[0] == set()


def test_operators_of_another_region_in_the_group_are_named(
    address: str, topic: str, tmp_path: Path
) -> None:
    """A typing error in the region's name; the output is another, so only the group tells."""
    produce(address, topic, 4, 100)
    with running(worker(address, topic, ParquetDirectory(tmp_path / "a"))) as (one,):
        eventually(lambda: one.owned == 4, "it works")
        late = ParquetDirectory(tmp_path / "b")
        text = refused(worker(address, topic, late, "two", region=f"typo-{topic}"))
        assert one.owned == 4
    assert one.error is None
    assert f"region typo-{topic} does not exist yet" in text
    assert f"its group group-{topic} has members: one." in text
    assert "If they are operators of a region, give this one its name" in text
    assert topics_of(address, f"typo-{topic}") == set()
    assert one.worker.state is not None
    assert one.worker.state.attempt == 1


def test_a_plain_consumer_keeps_a_region_from_being_created_but_not_from_going_on(
    address: str, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink = ParquetDirectory(tmp_path)
    run_to_the_end(address, topic, sink, tmp_path)
    with Consumer(
        bootstrap_servers=address, group_id=f"group-{topic}", client_id="plain"
    ) as consumer:
        consumer.subscribe([topic])
        eventually(lambda: bool(consumer.poll(100) or consumer.assignment()), "it is a member")
        other = ParquetDirectory(tmp_path / "b")
        assert "has members: plain on " in refused(
            worker(address, topic, other, region=f"b-{topic}")
        )

        def is_told() -> bool:
            consumer.poll(100)
            return one.owned == 2 and "plain on " in caplog.text

        with running(worker(address, topic, sink)) as (one,):
            eventually(is_told, "they share the topic, and a WARNING says so")
    assert one.error is None


def test_a_controller_alone_is_refused_as_well(address: str, topic: str, tmp_path: Path) -> None:
    sink = DeltaSink(tmp_path, SCHEMA)
    run_to_the_end(address, topic, sink, tmp_path)
    made = Candidate(
        f"typo-{topic}",
        DeltaPublisher(tmp_path),
        {"group_id": f"group-{topic}"},
        {"bootstrap_servers": address},
    )
    with pytest.raises(SinkError, match=f"holds the output of region 'region-{topic}'"):
        asyncio.run(made.run())


def test_what_another_process_of_the_region_does_meanwhile_is_no_reason(
    address: str, topic: str
) -> None:
    """It has created the control topic, joined the group and opened the output."""

    async def check(admin: AsyncAdminClient) -> None:
        other = ControlLog(topic, {"bootstrap_servers": address})
        await other.open()
        await other.close()
        raise RegionError("the group has members")

    async def main() -> None:
        control = ControlLog(topic, {"bootstrap_servers": address}, check=check)
        await control.open()
        await control.close()

    asyncio.run(main())
