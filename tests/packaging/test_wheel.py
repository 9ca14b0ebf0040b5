"""The archive of sources and the wheel have all that belongs to them, and a wheel can be used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.packaging.building import (
    ORDERS_TEST,
    ROOT,
    SOURCES_ONLY,
    archive_of,
    below,
    source_tree,
    unpacked,
    wheel_of,
)

# Plugins that the tests of this repository use and that take time to load.
WITHOUT = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:randomly")
COMPILED = sysconfig.get_config_var("EXT_SUFFIX")


@pytest.fixture(scope="module")
def archive_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is in the archive of sources."""
    tree = tmp_path_factory.mktemp("sources") / "tree"
    tree.mkdir()
    source_tree(tree)
    if (cython := ROOT / "build" / "cython").is_dir():  # so that nothing is translated again
        shutil.copytree(cython, tree / "build" / "cython")
    made = unpacked(archive_of(tree), tmp_path_factory.mktemp("unpacked"))
    shutil.move(tree / "build", made / "build")
    return made


@pytest.fixture(scope="module")
def wheel(archive_tree: Path) -> Path:
    """A wheel of the extension modules that are compiled here already: compiling takes minutes."""
    version = sys.implementation.cache_tag
    compiled = archive_tree / "build" / f"lib.{sysconfig.get_platform()}-{version}"
    for path in (ROOT / "src").rglob(f"*{COMPILED}"):
        target = compiled / path.relative_to(ROOT / "src")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)  # newer than its source, so it is not compiled again
    return wheel_of(archive_tree)


def test_the_archive_has_every_source(archive_tree: Path) -> None:
    ours = {path for path in below(ROOT / "src") if not path.endswith((".so", ".pyc"))}
    assert below(archive_tree / "src") == ours
    assert not (archive_tree / "tests").exists()


def test_the_wheel_has_every_module_and_no_source_of_extensions(
    archive_tree: Path, wheel: Path
) -> None:
    sources = {each for each in below(archive_tree / "src") if not each.endswith(SOURCES_ONLY)}
    extensions = {
        each.replace(".pyx", COMPILED)
        for each in below(archive_tree / "src")
        if each.endswith(".pyx")
    }
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == sources | extensions


def test_tests_use_the_fixtures_of_the_wheel(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path / "site")
    home = tmp_path / "orders"
    home.mkdir()
    where = f"import kohort\nassert kohort.__file__.startswith({str(tmp_path)!r})\n"
    (home / "test_orders.py").write_text(where + ORDERS_TEST)
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir=.", *WITHOUT]
    done = subprocess.run(
        command,
        cwd=home,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
