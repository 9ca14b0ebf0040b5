"""Tables drawn at random: types, nullability, names and contents that Delta's writers must keep."""

from __future__ import annotations

import datetime
import decimal
import random
import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kohort.delta.parquet import ArrowTask
from kohort.delta.reports import TaskReport

UTC = datetime.UTC
ROWS = 12
TEXTS = [
    "", " ", "a", "A", "NULL", "é", "日本", "\0", "a\nb", "'quoted\"", "\U0001f600", "\U0010ffff",
    "x" * 64, "x" * 65, "\U0010ffff" * 70, "\ud7ff" * 65, "~" * 5000,
]  # fmt: skip
NAMES = ["plain", "with blank", "a.b", "q'uote", 'q"uote', "UPPER", "ümlaut", "back`tick", "a-b"]


@dataclass(frozen=True)
class Kind:
    """A type, and what draws a value of it."""

    name: str
    type: pa.DataType
    draw: Callable[[random.Random], Any]


@dataclass(frozen=True)
class TableRows:
    """The rows of tables, each a task of its own."""

    tables: Iterable[pa.Table]

    def write(self, task: ArrowTask) -> Iterator[TaskReport]:
        for table in self.tables:
            for batch in task(table.to_batches()):
                yield TaskReport.from_json(batch["report"][0].as_py())


def integer(bits: int) -> Kind:
    high = 2 ** (bits - 1) - 1
    edges = [0, 1, -1, high, -high - 1]
    return Kind(f"int{bits}", getattr(pa, f"int{bits}")(), lambda r: any_of(r, edges, -100, 100))


def any_of(r: random.Random, edges: list[int], low: int, high: int) -> int:
    return r.choice(edges) if r.random() < 0.2 else r.randint(low, high)


def number(r: random.Random) -> float:
    edges = [0.0, -0.0, 1.5, float("nan"), float("inf"), float("-inf"), 2.0**-120, 2.0**120]
    return r.choice(edges) if r.random() < 0.1 else r.randint(-1000, 1000) / 8


def decimal_of(precision: int, scale: int) -> Kind:
    def draw(r: random.Random) -> decimal.Decimal:
        digits = r.choice([1, precision // 2 + 1, precision])
        with decimal.localcontext(prec=precision + 2):
            unscaled = r.randint(-(10**digits) + 1, 10**digits - 1)
            return decimal.Decimal(unscaled).scaleb(-scale)

    return Kind(f"decimal({precision},{scale})", pa.decimal128(precision, scale), draw)


def day(r: random.Random) -> datetime.date:
    if r.random() < 0.1:
        return r.choice([datetime.date.min, datetime.date.max, datetime.date(1969, 12, 31)])
    return datetime.date(1900, 1, 1) + datetime.timedelta(days=r.randint(0, 80_000))


def moment(zone: datetime.tzinfo | None) -> Callable[[random.Random], datetime.datetime]:
    def draw(r: random.Random) -> datetime.datetime:
        first = datetime.datetime(1900, 1, 1, tzinfo=zone)
        fraction = r.choice([0, 1, 999, 999_999, 123_456])
        return first + datetime.timedelta(days=r.randint(0, 80_000), microseconds=fraction)

    return draw


def text(r: random.Random) -> str:
    drawn = "".join(r.choices(string.ascii_letters, k=r.randint(1, 80)))
    return r.choice(TEXTS) if r.random() < 0.2 else drawn


def octets(r: random.Random) -> bytes:
    return r.choice([b"", b"\0", b"\xff" * 3, r.randbytes(80)])


PRIMITIVES = [
    Kind("boolean", pa.bool_(), lambda r: r.random() < 0.5),
    *(integer(bits) for bits in (8, 16, 32, 64)),
    Kind("float32", pa.float32(), number),
    Kind("float64", pa.float64(), number),
    *(decimal_of(*each) for each in ((5, 0), (10, 2), (20, 5), (38, 10), (38, 38))),
    Kind("string", pa.string(), text),
    Kind("binary", pa.binary(), octets),
    Kind("date", pa.date32(), day),
    Kind("timestamp", pa.timestamp("us", "UTC"), moment(UTC)),
    Kind("timestamp_ntz", pa.timestamp("us"), moment(None)),
]
KINDS = [*(kind.name for kind in PRIMITIVES), "array", "map", "struct"]


def drawn_kind(r: random.Random, seen: Counter[str], depth: int = 2) -> Kind:
    name = r.choice(KINDS if depth else [kind.name for kind in PRIMITIVES])
    seen[f"type {name}"] += 1
    if name == "array":
        item = nullable(r, drawn_kind(r, seen, depth - 1), seen)
        return Kind(
            name, pa.list_(item.type), lambda r: [item.draw(r) for _ in range(r.randint(0, 3))]
        )
    if name == "map":
        value = nullable(r, drawn_kind(r, seen, depth - 1), seen)
        return Kind(
            name, pa.map_(pa.string(), value.type),
            lambda r: [(f"k{n}", value.draw(r)) for n in range(r.randint(0, 3))],
        )  # fmt: skip
    if name == "struct":
        inner = {name: nullable(r, drawn_kind(r, seen, depth - 1), seen) for name in "ab"}
        kind = pa.struct([(name, each.type) for name, each in inner.items()])
        return Kind("struct", kind, lambda r: {name: each.draw(r) for name, each in inner.items()})
    return next(kind for kind in PRIMITIVES if kind.name == name)


def nullable(r: random.Random, kind: Kind, seen: Counter[str]) -> Kind:
    """A kind some, all or none of whose values are null."""
    share = r.choice([0.0, 0.3, 1.0] if r.random() < 0.3 else [0.0, 0.3])
    seen[f"nulls {'none' if not share else 'all' if share == 1 else 'some'}"] += 1
    return Kind(kind.name, kind.type, lambda r: None if r.random() < share else kind.draw(r))


def drawn(seed: int, seen: Counter[str]) -> pa.Table:
    """A table of rows of one Kafka partition; what was drawn is counted in `seen`."""
    r = random.Random(seed)
    rows = r.choice([1, ROWS])
    columns: dict[str, pa.Array] = {
        "topic": pa.array(["t"] * rows),
        "partition": pa.array([0] * rows, pa.int32()),
        "offset": pa.array(range(rows), pa.int64()),
    }
    for name in r.sample(NAMES, 6):
        seen[f"name {name}"] += 1
        kind = nullable(r, drawn_kind(r, seen), seen)
        columns[name] = pa.array([kind.draw(r) for _ in range(rows)], kind.type)
    return pa.table(columns)
