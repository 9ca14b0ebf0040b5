"""Data files of dialogues as text: a table for each, into which `make record` writes."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.real_kafka.broker import KAFKA_LIBS

# A line of a table that is a step, or what was seen in one.
STEP = re.compile(r"(\d+)\.")

_HEADER = re.compile(r"\[([\w-]+)\]")


def kafka_version() -> str:
    """The version of the jars that are run."""
    (jar,) = KAFKA_LIBS.glob("kafka-clients-*.jar")
    return jar.stem.removeprefix("kafka-clients-")


def digest(version: str, said: object) -> str:
    """What `recorded` has to say: the version of Kafka, and a digest of all that was seen there."""
    return f"{version} {hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]}"


def only_entry(number: int, line: dict[str, object]) -> tuple[str, object]:
    """The one thing that a step does."""
    if len(line) != 1:
        raise ValueError(f"step {number} has {sorted(line)}")
    return next(iter(line.items()))


def refuse_others(name: str, table: dict[str, object]) -> None:
    """Raise ValueError if anything of a table was not used."""
    if table:
        raise ValueError(f"{name} has unknown entries {sorted(table)}")


def rewrite(path: Path, recorded: Callable[[str, str], str | None]) -> None:
    """Write the tables of a file anew.

    Args:
        path: The file.
        recorded: Gets the name and the text of a table; returns its new text, None to keep it.
    """
    first, *tables = re.split(r"(?m)^(?=\[)", path.read_text())
    written = [first]
    for table in tables:
        name = _HEADER.match(table)
        assert name is not None, table
        new = recorded(name[1], table)
        written.append(table if new is None else new)
    path.write_text("".join(written).rstrip("\n") + "\n")


def report(what: str, count: int, failures: Iterable[tuple[str, str]]) -> int:
    """Tell how recording went; return 1 if a dialogue did not run to its end.

    Args:
        what: What was recorded.
        count: How many.
        failures: Name and reason of those that failed, several of one where it ran several times.
    """
    broken = set()
    for name, reason in failures:
        sys.stdout.write(f"{name}: {reason}\n")
        broken.add(name)
    sys.stdout.write(f"{count} {what} recorded, {len(broken)} failed\n")
    return 1 if broken else 0
