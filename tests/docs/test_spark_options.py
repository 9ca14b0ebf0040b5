"""The tables in docs/spark.md and docs/spark-migration.md name the options that are parsed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kohort.spark.options.region import REGION_OPTIONS
from kohort.spark.options.source import OPTIONS, SPARK_ONLY, OptionError, parse_options

DOCS = Path(__file__).parents[2] / "docs"
OWN = {
    "groupMode",
    "positions",
    "exclusive",
    "checkpointLocation",
    "columns",
    "table",
    "commitMetadata",
}
OWN |= {*REGION_OPTIONS}
SPARKS_SETTINGS = {"kafka.bootstrap.servers", "kafka.group.id"}
SETTINGS = SPARKS_SETTINGS | {"kafka.client.id", "kafka.group.instance.id", "kafka.*"}


def rows(name: str, heading: str) -> dict[str, list[str]]:
    """The cells of the first table below a heading, by the option in the first one."""
    text = (DOCS / name).read_text().split(f"## {heading}\n")[1]
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert table is not None
    lines = [line.split("|")[1:-1] for line in table[0].splitlines()[2:]]
    return {cells[0].strip().strip("`"): [cell.strip() for cell in cells[1:]] for cells in lines}


def test_every_option_is_documented() -> None:
    assert rows("spark.md", "Options").keys() == {*OPTIONS, *SETTINGS}


def test_every_option_of_sparks_own_source_has_a_row() -> None:
    expected = {*OPTIONS, *SPARK_ONLY, *SPARKS_SETTINGS} - OWN
    assert rows("spark-migration.md", "Options for reading").keys() == expected


def test_what_has_no_effect_is_said_as_in_the_log() -> None:
    found = rows("spark-migration.md", "Options for reading")
    assert {cells[0] for cells in found.values()} == {"same", "more", "differs", "no effect"}
    assert {name for name, cells in found.items() if cells[0] == "no effect"} == set(SPARK_ONLY)
    for name, why in SPARK_ONLY.items():
        instead = re.search(r"kafka[.a-z]+", why)
        assert instead is None or instead[0] in found[name][1] or name == "groupIdPrefix"


def test_options_of_our_own_are_named() -> None:
    text = (
        (DOCS / "spark-migration.md").read_text().split("## Options that only this source has")[1]
    )
    assert set(re.findall(r"`(\w+)`", text.split("##")[0])) == OWN


@pytest.mark.parametrize(
    "name",
    ["auto.offset.reset", "key.deserializer", "value.deserializer", "enable.auto.commit",
     "interceptor.classes"],
)  # fmt: skip
def test_settings_that_are_documented_as_refused_are(name: str) -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "a", f"kafka.{name}": "true"}
    with pytest.raises(OptionError, match=name):
        parse_options(given)
