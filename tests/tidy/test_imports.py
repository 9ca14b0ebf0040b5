"""What an import may bring with it, seen in a fresh process: layers keep start-up short."""

from __future__ import annotations

import subprocess
import sys

import pytest

import kohort

HEAVY = ("deltalake", "numpy", "pandas", "pyarrow", "pyspark")


def modules_after(statement: str) -> set[str]:
    """The top-level modules and our own packages that a fresh Python has loaded."""
    program = f"{statement}\nimport sys\nprint(*sys.modules, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["kohort", "kohort.broker", "kohort.group", "kohort.wire"])
def test_the_broker_and_what_it_stands_on_are_light(module: str) -> None:
    assert modules_after(f"import {module}").isdisjoint(HEAVY)


def test_spark_finds_the_source_without_loading_the_rest() -> None:
    rest = {"deltalake", "kohort.broker", "kohort.client", "kohort.demo", "rich", "typer"}
    assert modules_after("import pyspark_kohort").isdisjoint(rest)


def test_every_public_name_is_there() -> None:
    assert [name for name in kohort.__all__ if getattr(kohort, name, None) is None] == []
