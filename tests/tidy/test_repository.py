"""The repository keeps its own rules (tests/tidy/checks.py says which and why)."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.tidy import checks

ROOT = Path(__file__).resolve().parents[2]
CORE = ("src/kohort/group/", "src/kohort/region/machines/", "src/kohort/streams/assignment/")
CODE = (".py", ".pyx", ".pxd")
TEXT = (*CODE, ".md", ".toml", ".txt", ".cfg", ".sh", ".xml", ".yml", ".yaml", ".json", "")


@functools.cache
def repository_files() -> tuple[str, ...]:
    """What is committed, or would be: paths from the root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return tuple(path for path in sorted(set(listed.splitlines())) if (ROOT / path).is_file())


def select(*suffixes: str, under: tuple[str, ...] = ("",)) -> Iterator[str]:
    for path in repository_files():
        if Path(path).suffix in suffixes and path.startswith(under):
            yield path


def complaints(check: Callable[[str], Iterator[str]], paths: Iterator[str]) -> list[str]:
    return [
        f"{path}: {complaint}"
        for path in paths
        for complaint in check((ROOT / path).read_text(encoding="utf-8"))
    ]


def test_functions_are_short() -> None:
    assert complaints(checks.long_functions, select(".py")) == []
    assert complaints(checks.long_cython_functions, select(".pyx")) == []


def test_nothing_is_left_unfinished() -> None:
    assert complaints(checks.unfinished_work, select(*TEXT)) == []


def test_silenced_checkers_are_explained() -> None:
    assert complaints(checks.unexplained_ignores, select(*CODE, under=CHECKED)) == []


def test_public_signatures_are_typed() -> None:
    assert complaints(checks.any_in_public_signatures, select(".py", under=("src/",))) == []


def test_the_core_is_pure() -> None:
    assert complaints(checks.impure_core, select(".py", under=CORE)) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Import-linter sees circles of packages only where a contract puts one above the other.

    The package `kohort` apart, whose init names the whole library for types.
    """
    modules = {}
    for path in select(".py", ".pyx", under=("src/",)):
        name = path.removeprefix("src/").rpartition(".")[0].replace("/", ".")
        text = (ROOT / path).read_text(encoding="utf-8") if path.endswith(".py") else ""
        modules[name.removesuffix(".__init__")] = text
    assert len(modules) > 700
    del modules["kohort"]
    assert checks.import_circle(modules) == []


def test_values_are_those_of_the_house() -> None:
    # the one place for copies, and classes that derive from Spark's
    apart = {
        f"src/kohort/{name}.py"
        for name in ("values", "spark/source/partition_reader", "spark/writer/datasource")
    }
    paths = (path for path in select(".py", under=("src/",)) if path not in apart)
    assert complaints(checks.slow_dataclasses, paths) == []


def test_tests_do_not_evade() -> None:
    # What tests/usage has beside its one test are programs of users, whose work may take its time;
    # tests/simulation/planting puts bugs in the place of code.
    apart = ("tests/usage/", "tests/simulation/planting/")
    tests = (
        path
        for path in select(".py", under=("tests/",))
        if not path.startswith(apart) or path.endswith("/test_usage.py")
    )
    assert complaints(checks.evasive_tests, tests) == []


def test_nothing_names_a_machine_or_a_registry() -> None:
    assert complaints(checks.machine_paths, select(*TEXT)) == []
    assert complaints(checks.registry_hosts, select(*TEXT)) == []


def test_rule_ids_in_documents_are_links() -> None:
    user_documents = (
        path
        for path in select(".md", under=("README.md", "docs/"))
        if path != "docs/internals/rules.md" and not path.startswith("docs/decisions/")
    )
    assert complaints(checks.unlinked_rule_ids, user_documents) == []


def test_a_change_is_told_once() -> None:
    told = select(".md", under=("CHANGELOG.md", "changelog.d/"))
    text = "\n".join((ROOT / path).read_text() for path in told)
    assert list(checks.repeated_changes(text)) == []


def test_fragments_of_the_changelog_have_their_names() -> None:
    fragments = list(select(".md", under=("changelog.d/",)))
    names = [Path(path).name for path in fragments if Path(path).name != "README.md"]
    assert [complaint for name in names for complaint in checks.misnamed_fragment(name)] == []


def test_every_package_is_one() -> None:
    folders = {Path(path).parent for path in select(*CODE, under=("src/",))}
    assert [str(folder) for folder in folders if not (ROOT / folder / "__init__.py").exists()] == []


def test_files_are_small_enough_to_be_cloned_by_everybody() -> None:
    sizes = {path: (ROOT / path).stat().st_size for path in repository_files()}
    assert {p: size for p, size in sizes.items() if size > checks.FILE_BYTES_MAX} == {}


# The checks of the ignores speak of them in comments and samples.
CHECKED = tuple(f"{folder}/" for folder in ("src", "benchmarks", "examples", "tools")) + tuple(
    f"tests/{folder.name}/"
    for folder in (ROOT / "tests").iterdir()
    if folder.is_dir() and folder.name != "tidy"
)
