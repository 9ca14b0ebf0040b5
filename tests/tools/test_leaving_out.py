"""Nothing is left out of a run unseen (tests/conftest.py)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPING = "import pytest\n\ndef test_it() -> None:\n    pytest.skip('not today')\n"


def pytest_run(*arguments: str, require_all: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    command += ["-c", str(ROOT / "pyproject.toml"), *arguments]
    environment = {**os.environ, "KOHORT_REQUIRE_ALL": require_all}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_a_part_that_is_left_out_is_counted() -> None:
    run = pytest_run("--collect-only", "--leave-out=real_kafka", "tests/real_kafka")
    assert re.search(r"[1-9]\d* deselected / 0 selected", run.stdout)


def test_a_skipped_test_fails_the_run_that_requires_all(tmp_path: Path) -> None:
    (tmp_path / "test_skipping.py").write_text(SKIPPING)
    arguments = ("-p", "tests.conftest", f"--rootdir={tmp_path}", str(tmp_path))
    assert pytest_run(*arguments).returncode == 0
    assert pytest_run(*arguments, require_all="1").returncode == 1
