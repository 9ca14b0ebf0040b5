"""Rules that a table has: each is kept, or the table is refused by name before the first row."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from kohort.delta.append import TableAppend
from kohort.delta.columns import nullable_type
from kohort.delta.compaction import TARGET_BYTES, compact
from kohort.delta.parquet import ArrowTask
from kohort.delta.positions import DeltaAppendError
from kohort.delta.reports import TaskReport
from kohort.delta.rules import FEATURES
from kohort.delta.storage import table_storage
from kohort.region import DeltaSink, OperatorId, RegionPartition, SinkError
from tests.delta.random_tables import TableRows

READERS_TOO = {
    *("columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "v2Checkpoint"),
    *("vacuumProtocolCheck", "variantType"),
}
PLACE = RegionPartition("t", "an-id", 0)
KEYS = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])


def column(
    name: str, kind: object = "long", *, nullable: bool = True, **metadata: str
) -> dict[str, Any]:
    names = {f"delta.{name}": value for name, value in metadata.items()}
    return {"name": name, "type": kind, "nullable": nullable, "metadata": names}


def made(
    path: Path,
    columns: Sequence[dict[str, Any]] = (),
    configuration: Mapping[str, str] | None = None,
    features: Sequence[str] = (),
    partition_by: Sequence[str] = (),
) -> None:
    """Make an empty table as another writer might: its log, by the protocol's text."""
    keys = [column("topic", "string"), column("partition", "integer"), column("offset")]
    schema = {"type": "struct", "fields": [*keys, *columns]}
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": [each for each in features if each in READERS_TOO],
        "writerFeatures": list(features),
    }
    metadata = {
        "id": "5c1b7e1e-0000-4000-8000-000000000001",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": list(partition_by),
        "configuration": dict(configuration or {}),
        "createdTime": 0,
    }
    log = path / "_delta_log"
    log.mkdir(parents=True)
    lines = [json.dumps({"protocol": protocol}), json.dumps({"metaData": metadata})]
    (log / f"{0:020}.json").write_text("\n".join(lines))


def keyed(**columns: pa.Array) -> pa.Table:
    rows = len(next(iter(columns.values()))) if columns else 1
    keys = [pa.array(["t"] * rows), pa.array([0] * rows, pa.int32()), pa.array(range(rows))]
    return pa.table([*keys, *columns.values()], [*KEYS.names, *columns])


def append(path: Path, group: str = "g", **columns: pa.Array) -> None:
    table = keyed(**columns)
    TableAppend(path, group).append(TableRows([table]), table.schema, 0)


@pytest.mark.parametrize(
    ("columns", "configuration", "rule"),
    [
        ([column("n")], {"delta.constraints.positive": "n > 0"}, r"positive: CHECK \(n > 0\)"),
        ([column("n", generationExpression="offset + 1")], {}, r"generated column, n \(offset"),
        ([column("n", invariants='{"expression": {}}')], {}, "an invariant, n"),
        (
            [column("s", {"type": "struct", "fields": [column("n", invariants="{}")]})],
            {},
            r"an invariant, s\.n",
        ),
    ],
)
def test_a_rule_that_cannot_be_kept_is_named(
    tmp_path: Path, columns: list[dict[str, Any]], configuration: dict[str, str], rule: str
) -> None:
    made(tmp_path, columns, configuration, ["checkConstraints", "generatedColumns", "invariants"])
    with pytest.raises(DeltaAppendError, match=rule):
        append(tmp_path)
    assert not list(tmp_path.glob("*.parquet"))


@pytest.mark.parametrize("feature", sorted(FEATURES))
def test_a_feature_that_asks_nothing_of_new_files_is_kept(tmp_path: Path, feature: str) -> None:
    made(tmp_path, [column("n")], features=[feature])
    for number in (1, 2):
        append(tmp_path, f"g{number}", n=pa.array([number]))
    assert numbers(tmp_path) == [1, 2]
    is_free = not FEATURES[feature].compaction
    assert compact(DeltaTable(tmp_path), table_storage(tmp_path), TARGET_BYTES) == is_free
    assert numbers(tmp_path) == [1, 2]
    assert len(DeltaTable(tmp_path).file_uris()) == 1 + (not is_free)


def numbers(table: Path) -> list[int]:
    query = QueryBuilder().register("t", DeltaTable(table)).execute("select n from t order by n")
    found: list[int] = pa.table(query.read_all())["n"].to_pylist()
    return found


@pytest.mark.parametrize(
    "feature",
    [
        *("identityColumns", "rowTracking", "domainMetadata", "typeWidening", "clustering"),
        *("inCommitTimestamp", "icebergCompatV1", "icebergCompatV2", "allowColumnDefaults"),
        *("checkpointProtection", "materializePartitionColumns", "vacuumProtocolCheck"),
        "featureOfTomorrow",
    ],
)
def test_another_feature_is_named(tmp_path: Path, feature: str) -> None:
    made(tmp_path, [column("n")], features=[feature])
    with pytest.raises(DeltaAppendError, match=f"the feature {feature}"):
        append(tmp_path, n=pa.array([1]))
    assert not list(tmp_path.glob("*.parquet"))


def struct_of(*columns: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(columns)}


ARRAY = {"type": "array", "elementType": "long", "containsNull": False}
MAP = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": False}
STRUCT = struct_of(column("a", nullable=False))


@pytest.mark.parametrize(
    ("columns", "good", "bad", "where"),
    [
        ([column("n", nullable=False)], [1, 2], [None], "'n'"),
        ([column("n", STRUCT, nullable=False)], [{"a": 1}], [{"a": None}], r"'n\.a'"),
        ([column("n", ARRAY)], [[1], [], None], [[None]], r"'n\.element'"),
        ([column("n", MAP)], [[("k", 1)], None], [[("k", None)]], r"'n\.value'"),
    ],
)
def test_what_must_not_be_null_is_not(
    tmp_path: Path, columns: list[dict[str, Any]], good: list[Any], bad: list[Any], where: str
) -> None:
    made(tmp_path, columns)
    kind = nullable_type(pa.schema(DeltaTable(tmp_path).schema().to_arrow()).field("n").type)
    append(tmp_path, n=pa.array(good, kind))
    with pytest.raises(DeltaAppendError, match=where):
        append(tmp_path, group="other", n=pa.array(bad, kind))
    assert DeltaTable(tmp_path).to_pyarrow_table()["n"].to_pylist() == good
    assert len(list(tmp_path.glob("*.parquet"))) == 1


def test_an_empty_text_in_a_partition_column_that_must_not_be_null_is_refused(
    tmp_path: Path,
) -> None:
    made(tmp_path, [column("n", "string", nullable=False)], partition_by=["n"])
    with pytest.raises(DeltaAppendError, match="empty text in a partition column"):
        append(tmp_path, n=pa.array([""]))


def test_a_field_that_must_not_be_null_in_one_that_may_be_is_refused(tmp_path: Path) -> None:
    made(tmp_path, [column("n", STRUCT)])
    with pytest.raises(DeltaAppendError, match=r"must not be null in one that may be, n\.a"):
        append(tmp_path)


def test_a_rule_that_is_added_meanwhile_is_kept(tmp_path: Path) -> None:
    """The table gets a constraint after the rows are written and before they are committed."""
    made(tmp_path, [column("n")], features=["checkConstraints"])

    class Meanwhile(TableRows):
        def write(self, task: ArrowTask) -> Iterator[TaskReport]:
            yield from super().write(task)
            DeltaTable(tmp_path).alter.add_constraint({"positive": "n > 0"})

    table = keyed(n=pa.array([-1]))
    with pytest.raises(DeltaAppendError, match="the constraint positive"):
        TableAppend(tmp_path, "g").append(Meanwhile([table]), table.schema, 0)
    assert not list(tmp_path.glob("*.parquet"))


def test_a_not_null_that_is_added_meanwhile_is_kept(tmp_path: Path) -> None:
    """The table gets it after the rows are written and before they are committed."""
    made(tmp_path, [column("n")])

    class Meanwhile(TableRows):
        def write(self, task: ArrowTask) -> Iterator[TaskReport]:
            yield from super().write(task)
            forbid_null(tmp_path)

    table = keyed(n=pa.array([None], pa.int64()))
    with pytest.raises(DeltaAppendError, match="'n' of the table must not be null") as caught:
        TableAppend(tmp_path, "g").append(Meanwhile([table]), table.schema, 0)
    assert str(caught.value).startswith(str(tmp_path))
    assert "in the record t-0 offset 0 it is" in str(caught.value)
    assert not list(tmp_path.glob("*.parquet"))


def forbid_null(table: Path) -> None:
    """Commit that column n must not be null, once, as ALTER COLUMN SET NOT NULL does."""
    log = table / "_delta_log"
    first = (log / f"{0:020}.json").read_text().split("\n")
    metadata = next(json.loads(line) for line in first if "metaData" in line)
    schema = json.loads(metadata["metaData"]["schemaString"])
    for each in schema["fields"]:
        each["nullable"] = each["name"] != "n"
    metadata["metaData"]["schemaString"] = json.dumps(schema)
    versions = len(list(log.glob("*.json")))
    (log / f"{versions:020}.json").write_text(json.dumps(metadata))


def test_a_region_keeps_a_not_null_that_is_added_while_it_runs(tmp_path: Path) -> None:
    table = keyed(n=pa.array([None], pa.int64()))
    sink = DeltaSink(tmp_path, table.schema)
    sink.open("r", "id-1", 0)
    operator = OperatorId("north", "incarnation")
    writer = sink.writer(operator, 1)
    writer.write(PLACE, table)
    output = writer.prepare(1, 1)
    forbid_null(tmp_path)
    with pytest.raises(SinkError, match=r"column 'n' became NOT NULL after rows were written"):
        sink.publish(1, {operator: output})
    with pytest.raises(DeltaAppendError, match="'n' of the table must not be null"):
        writer.write(PLACE, table)


def test_a_table_with_variants_gets_rows_without_them(tmp_path: Path) -> None:
    """In Arrow a variant is a structure of two fields that must not be null."""
    array = {"type": "array", "elementType": "variant", "containsNull": True}
    columns = [column("n"), column("v", "variant"), column("s", struct_of(column("w", array)))]
    made(tmp_path, columns, features=["variantType"])
    append(tmp_path, n=pa.array([1]))
    rows = DeltaTable(tmp_path).to_pyarrow_dataset().to_table(columns=["n", "v"])
    assert rows.to_pylist() == [{"n": 1, "v": None}]


def test_comments_of_columns_are_those_of_a_new_table(tmp_path: Path) -> None:
    told, rule = {"comment": "how late"}, {"delta.invariants": "x"}
    inner = pa.struct([pa.field("a", pa.int64(), metadata=told)])
    by_spark = {"SPARK::metadata::json": json.dumps({"comment": "by Spark", "x": 1})}
    fields = [
        pa.field("n", pa.int64(), metadata={**told, **rule}),
        pa.field("s", inner),
        pa.field("p", pa.int64(), metadata=by_spark),
    ]
    columns = [pa.array([1]), pa.array([{"a": 1}], inner), pa.array([1])]
    keys = keyed(n=pa.array([1])).select(KEYS.names)
    table = pa.table([*keys.columns, *columns], pa.schema([*KEYS, *fields]))
    TableAppend(tmp_path, "g").append(TableRows([table]), table.schema, 0)
    found = {each["name"]: each for each in json.loads(schema_of(tmp_path))["fields"]}
    assert found["n"]["metadata"] == told
    assert found["s"]["type"]["fields"][0]["metadata"] == told
    assert found["p"]["metadata"] == {"comment": "by Spark"}


def schema_of(table: Path) -> str:
    text: str = DeltaTable(table).schema().to_json()
    return text


@pytest.mark.parametrize("is_new", [True, False])
def test_a_map_with_times_that_would_spoil_the_table_is_refused(
    tmp_path: Path, is_new: bool
) -> None:
    if not is_new:
        append(tmp_path)
    table = keyed(n=pa.array([None], pa.map_(pa.string(), pa.timestamp("us"))))
    writer = TableAppend(tmp_path, "other", schema_mode="merge")
    with pytest.raises(DeltaAppendError, match="column 'n' is a map with times"):
        writer.append(TableRows([table]), table.schema, 0)
    if not is_new:
        assert len(DeltaTable(tmp_path).to_pyarrow_table()) == 1


def test_the_docs_say_what_becomes_of_each_feature() -> None:
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    lines = page.split("| table feature | `append` | `optimize_every` |\n")[1].split("\n\n")[0]
    said = {}
    for features, appends, compaction in (
        line.strip("|").split("|") for line in lines.splitlines()[1:]
    ):
        for name in re.findall(r"`(\w+)`", features):
            said[name] = (appends.strip() == "kept", compaction.strip() == "kept")
            assert appends.strip().startswith("kept" if name in FEATURES else "refused")
    asked = {name: (not each.appends, not each.compaction) for name, each in FEATURES.items()}
    assert {name: each for name, each in said.items() if name in FEATURES} == asked
