"""Where the package is put so that it cannot work: the first import says so, and what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[3] / "src"

# A Spark before 4.2 has everything but this module.
OLD_SPARK = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name == "pyspark.sql.streaming.datasource":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
import importlib.util
real = importlib.util.find_spec
sys.meta_path.insert(0, Hide())
hidden = "pyspark.sql.streaming.datasource"
importlib.util.find_spec = lambda name: None if name == hidden else real(name)
"""


def run(code: str, path: Path) -> subprocess.CompletedProcess[str]:
    """Run code with the package from `path` and the libraries of this environment."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(path)},
        cwd=path.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """The whole package in a zip, as `spark-submit --py-files` gives it to Python."""
    made = tmp_path / "kohort.zip"
    with zipfile.ZipFile(made, "w") as target:
        for file in SOURCES.rglob("*"):
            if file.suffix in (".py", ".so", ".typed"):
                target.write(file, file.relative_to(SOURCES))
    return made


@pytest.mark.parametrize("code", [
    "import kohort",
    "from kohort import Consumer",
    "from kohort.spark import KohortDataSource",
    "import pyspark_kohort",
])  # fmt: skip
def test_an_archive_is_refused_with_what_works_instead(archive: Path, code: str) -> None:
    done = run(code, archive)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("kohort.installation.InstallationError: ")
    assert f"is imported from the archive {archive}, and" in last
    assert "--archives environment.tar.gz#environment" in last
    assert "No module named" not in done.stderr


def test_extension_modules_of_another_python_are_named_as_that(tmp_path: Path) -> None:
    home = tmp_path / "src"
    shutil.copytree(SOURCES, home, ignore=shutil.ignore_patterns("*.so", "*.pyx", "__pycache__"))
    last = run("import kohort", home).stderr.splitlines()[-1]
    assert f"are not beside {home / 'kohort'}" in last
    assert "they were built for another version of Python" in last


@pytest.mark.parametrize("code", [
    "from kohort.spark import KohortDataSource",
    "from kohort.spark import install; install(None)",
])  # fmt: skip
def test_an_old_spark_is_refused_by_its_version(code: str) -> None:
    """What `format("kohort")` says was run by hand with PySpark 4.0.1 and 4.1.0 themselves."""
    done = run(OLD_SPARK + code, SOURCES)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "SparkVersionError: kohort.spark needs Spark 4.2 or newer, and this is Spark " in last


# It also has fewer classes for sources. `OLD_SPARK` hides what the newer module imports.
OLD_SOURCES = (
    OLD_SPARK
    + """
import types
old = types.ModuleType("pyspark.sql.datasource")
exec("class DataSource: pass", old.__dict__)
sys.modules["pyspark.sql.datasource"] = old
import pyspark_kohort
print(pyspark_kohort.DefaultSource.name())
pyspark_kohort.DefaultSource({})
"""
)


def test_an_old_spark_finds_a_source_that_is_refused() -> None:
    """Spark looks into all packages `pyspark_*`, and finds no source if one import fails."""
    done = run(OLD_SOURCES, SOURCES)
    assert done.stdout == "kohort\n"
    assert "SparkVersionError: kohort.spark needs Spark 4.2 or newer" in done.stderr
