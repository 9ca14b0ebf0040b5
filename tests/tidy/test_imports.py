"""What an import may bring with it, seen in a fresh process: layers keep start-up short."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kohort

# Names of loggers that are no modules.
LOGGERS: frozenset[str] = frozenset()
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


# The packages of two extras are not there.
WITHOUT_EXTRAS = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in {"re2", "rich", "typer"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""


@pytest.mark.parametrize(
    ("statement", "extra"),
    [
        ("from kohort import EmbeddedBroker", "broker"),
        ("from kohort.testing import simulate", "broker"),
        ("from kohort.cli import run; run()", "cli"),
    ],
)
def test_a_missing_extra_is_named_by_the_line_to_type(statement: str, extra: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS + statement],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(f"pip install 'kohort[{extra}]'")


def test_clients_need_no_extra() -> None:
    statement = """
import kohort.group
from kohort import AdminClient, AsyncConsumer, AsyncProducer, Consumer, Producer
Consumer(bootstrap_servers="localhost:1").close()
"""
    modules_after(WITHOUT_EXTRAS + statement)


def packages() -> list[str]:
    found = pkgutil.walk_packages(kohort.__path__, "kohort.")
    return ["kohort", *(each.name for each in found if each.ispkg)]


@pytest.mark.parametrize("name", packages())
def test_every_public_name_is_there_and_none_is_that_of_a_submodule(name: str) -> None:
    """The import of a submodule sets its name in the package, whatever stood there."""
    package = importlib.import_module(name)
    public = getattr(package, "__all__", [])
    assert [each for each in public if getattr(package, each, None) is None] == []
    submodules = {each.name for each in pkgutil.iter_modules(package.__path__)}
    assert submodules.intersection(public) == set()


@pytest.mark.parametrize("name", ["kohort", "kohort.client", "kohort.spark", "kohort.streams"])
def test_completion_offers_the_public_names_before_their_first_use(name: str) -> None:
    program = f"import {name}; print(*dir({name}), sep='\\n')"
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    names = {each for each in printed.split() if not each.startswith("__")}
    package = importlib.import_module(name)
    submodules = {each.name for each in pkgutil.iter_modules(package.__path__)}
    assert names - submodules == set(package.__all__) - {"__version__"}


def names_in_pages() -> set[str]:
    root = Path(__file__).parents[2]
    pages = [root / "README.md", *(root / "docs").rglob("*.md")]
    return {
        name
        for page in pages
        for name in re.findall(r"\bkohort(?:\.[a-zA-Z]\w*)+", page.read_text())
        if name not in LOGGERS
    }


@pytest.mark.parametrize("name", sorted(names_in_pages()))
def test_every_name_of_the_pages_can_be_imported(name: str) -> None:
    assert pkgutil.resolve_name(name) is not None
