"""Which tests a run takes, what it says is left out, and what it tries again (tests/tiers.py)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import unsteady
from tests import tiers
from tests.reporting import FileResult, table

ROOT = Path(__file__).resolve().parents[2]
SKIPPING = "import pytest\n\ndef test_it() -> None:\n    pytest.skip('not today')\n"
FAILING = "def test_it() -> None:\n    raise ValueError('the cause')\n"


def pytest_run(*arguments: str, require_all: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly"]
    command += ["-c", str(ROOT / "pyproject.toml"), *arguments]
    environment = {**os.environ, "KOHORT_REQUIRE_ALL": require_all}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def outside(
    folder: Path, text: str, *arguments: str, require_all: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a file that is not one of the project's."""
    (folder / "test_outside.py").write_text(text)
    plugin = ("-p", "tests.conftest", f"--rootdir={folder}")
    return pytest_run(*plugin, *arguments, str(folder), require_all=require_all)


def test_a_part_that_is_left_out_is_counted() -> None:
    run = pytest_run("--collect-only", "--leave-out=real_kafka", "tests/system/kafka")
    assert re.search(r"[1-9]\d* deselected / 0 selected", run.stdout)


def test_a_skipped_test_fails_the_run_that_requires_all(tmp_path: Path) -> None:
    assert outside(tmp_path, SKIPPING).returncode == 0
    assert outside(tmp_path, SKIPPING, require_all="1").returncode == 1


def test_a_tier_takes_its_tests() -> None:
    """Both take a half of what is on two brokers; the second takes properties, too."""
    paths = [
        "tests/system/clients/test_crash.py",
        "tests/client/consumer/commits/test_commit_order.py",
        "tests/group/test_values.py",
    ]
    first, second = collected("first", *paths), collected("system", *paths)
    assert {file_of(test) for test in first} == {*paths[1:]}
    assert {file_of(test) for test in second} == {*paths}
    assert [test for test in first if "[kafka" in test] == []
    both = [test for test in second if file_of(test) == paths[1]]
    assert [test for test in both if "[kafka" not in test] == []


def collected(tier: str, *paths: str) -> list[str]:
    """The tests of files that a tier takes."""
    lines = pytest_run("--collect-only", "-q", f"--tier={tier}", *paths).stdout.splitlines()
    return [line for line in lines if line.startswith("tests/")]


def file_of(test: str) -> str:
    return test.partition("::")[0]


def test_failures_are_written_with_their_output(tmp_path: Path) -> None:
    file = tmp_path / "failures.json"
    outside(tmp_path, FAILING, f"--failures={file}")
    (found,) = json.loads(file.read_text())
    assert found["test"].endswith("test_outside.py::test_it")
    assert found["again"] is False
    assert "the cause" in found["output"]


@pytest.mark.parametrize(
    ("line", "again", "accident"),
    [("pass", True, True), ("assert False", True, False), ("pass", False, False)],
)
def test_what_passes_when_it_is_tried_again_is_an_accident(
    line: str, again: bool, accident: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unsteady, "UNSTEADY", tmp_path / "unsteady.json")
    monkeypatch.setattr(unsteady, "TIMES", 1)
    test = tmp_path / "test_once.py"
    test.write_text(f"def test_it() -> None:\n    {line}\n")
    failures = [{"test": f"{test}::test_it", "again": again, "output": "it failed"}]
    (tmp_path / "failures.json").write_text(json.dumps(failures))
    assert unsteady.are_accidents(tmp_path / "failures.json") is accident
    assert unsteady.UNSTEADY.exists() is accident


def test_no_failure_or_many_are_no_accident(tmp_path: Path) -> None:
    assert not unsteady.are_accidents(tmp_path / "none.json")
    many = [{"test": "t", "again": True, "output": ""}] * (unsteady.MOST + 1)
    (tmp_path / "many.json").write_text(json.dumps(many))
    assert not unsteady.are_accidents(tmp_path / "many.json")


def test_few_tests_are_known_to_be_unsteady() -> None:
    """Each with its cause, in tests/unsteady.toml."""
    known = tomllib.loads((tiers.TESTS / "unsteady.toml").read_text(encoding="utf-8"))
    assert len(known) <= 10
    assert [name for name in known if not (ROOT / name.partition("::")[0]).is_file()] == []
    assert [name for name, cause in known.items() if len(cause) < 20] == []


def test_files_that_count_records_exist() -> None:
    assert [path for path in tiers.COUNT_RECORDS if not path.is_file()] == []


def test_a_table_has_the_slowest_file_first() -> None:
    files = {"a.py": FileResult(2, 0, 1.0), "b.py": FileResult(1, 1, 9.0)}
    assert [line.split()[-1] for line in table(files, "all")] == ["file", "b.py", "a.py"]
    assert table(files, "") == []
