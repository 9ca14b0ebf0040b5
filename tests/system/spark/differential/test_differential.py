"""Spark's own Kafka source and ours in the same scenarios: rows, columns and errors compared.

Each commit plays another part; DIFFERENTIAL=all plays all of them, and DISCOVER=FILE writes down
what both sources did.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.real_kafka.broker import RealKafka
from tests.spark.sessions import MARKS, connector_jars, small_session
from tests.system.spark.differential.changes import CHANGES
from tests.system.spark.differential.comparing import differences
from tests.system.spark.differential.known import PAGE, known, page
from tests.system.spark.differential.scenarios import PARTS, SCENARIOS, Scenario, part
from tests.system.spark.differential.stories import OURS, SPARKS, Outcome, Story
from tests.system.spark.differential.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = MARKS


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with small_session(spark__jars=connector_jars()) as session:
        yield session


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An Apache Kafka of its own."""
    with RealKafka(tmp_path_factory.mktemp("kafka")) as kafka:
        yield kafka.bootstrap_servers


def outcome(
    spark: SparkSession, servers: str, scenario: Scenario, side: str, folder: Path
) -> Outcome:
    """What one source makes of a scenario."""
    what = CHANGES[scenario.change]
    world = World(servers, scenario.id, side)
    try:
        what.first(world)
        story = Story(spark, world, what.options, scenario.protocol, scenario.sink, folder / side)
        return story.tell(scenario.moment, what.make)
    finally:
        world.close()


def played() -> tuple[Scenario, ...]:
    """The part that DIFFERENTIAL names, from 0 on, or `all` of them; without it the first."""
    chosen = os.environ.get("DIFFERENTIAL", "0")
    return SCENARIOS if chosen == "all" else part(int(chosen))


def test_the_parts_are_all() -> None:
    assert {each for number in range(PARTS) for each in part(number)} == set(SCENARIOS)


def test_the_page_has_the_differences() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "python -m tests.system.spark.differential.known"
    )


@pytest.mark.parametrize("scenario", played(), ids=lambda each: each.id)
def test_scenario(spark: SparkSession, servers: str, scenario: Scenario, tmp_path: Path) -> None:
    """A difference is in `differences.toml`, and what is there differs just so."""
    with ThreadPoolExecutor(2) as pool:
        both = [
            pool.submit(outcome, spark, servers, scenario, side, tmp_path)
            for side in (OURS, SPARKS)
        ]
        ours, sparks = (each.result() for each in both)
    found = differences(ours, sparks, CHANGES[scenario.change].names)
    if os.environ.get("DISCOVER"):
        record(Path(os.environ["DISCOVER"]), scenario, found, ours, sparks)
    expected = known(scenario)
    assert expected.allows(found) if expected else not found, (found, ours, sparks)
    if expected and found:
        assert expected.ours_says in ours.error
        assert expected.sparks_say in sparks.error


def record(
    file: Path, scenario: Scenario, found: tuple[str, ...], ours: Outcome, sparks: Outcome
) -> None:
    with file.open("a") as lines:
        line = [str(scenario), found, ours.moment, ours.error[-700:], ours.rows.total()]
        line += [sparks.moment, sparks.error[:900], sparks.rows.total()]
        line += [str(ours.rows - sparks.rows)[:300], str(sparks.rows - ours.rows)[:300]]
        lines.write(json.dumps(line) + "\n")
