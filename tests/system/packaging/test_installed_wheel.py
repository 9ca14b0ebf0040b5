"""The archive of sources is compiled and installed where nothing else is, and used there."""

from __future__ import annotations

import os
import subprocess
import venv
from pathlib import Path

import pytest

from tests.packaging.building import ORDERS_TEST, ROOT, archive_of, source_tree

LIMIT_S = 1_500


def ran(*command: object, where: Path) -> str:
    """Run a command outside of this checkout, without what the environment says of it."""
    apart = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(each) for each in command],
        cwd=where,
        env=apart,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(2 * LIMIT_S)
def test_a_wheel_in_an_empty_environment_runs_tests_with_the_fixtures(tmp_path: Path) -> None:
    """pip brings what builds it, so the machine has to have a C compiler and nothing more."""
    (tmp_path / "tree").mkdir()
    archive = archive_of(source_tree(tmp_path / "tree"))
    venv.create(tmp_path / "empty", with_pip=True)
    pip: tuple[str | Path, ...] = (
        tmp_path / "empty" / "bin" / "pip",
        "--disable-pip-version-check",
        "--quiet",
    )
    ran(*pip, "wheel", "--no-deps", "--wheel-dir", tmp_path, archive, where=tmp_path)
    (wheel,) = tmp_path.glob("kohort-*.whl")
    tested = ("--constraint", ROOT / "constraints.txt")
    needed = (f"{wheel}[broker,cli]", "pytest", "confluent-kafka")
    ran(*pip, "install", *tested, *needed, where=tmp_path)
    home = tmp_path / "orders"
    home.mkdir()
    (home / "test_orders.py").write_text(ORDERS_TEST)
    programs = tmp_path / "empty" / "bin"
    assert "1 passed" in ran(programs / "pytest", "-q", where=home)
    assert "reset-offsets" in ran(programs / "kohort", "groups", "--help", where=home)
