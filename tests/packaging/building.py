"""The package as it is given away: its sources in an archive, and a wheel of these."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEFT_BEHIND = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
# What is compiled is in the archive and not in the wheel.
SOURCES_ONLY = (".pyx", ".pxd")

ORDERS_TEST = """
from confluent_kafka import Consumer

def test_orders_are_read(kohort_broker, kohort_topic, kohort_group):
    kohort_broker.produce(kohort_topic, b"one", b"two")
    where = {"bootstrap.servers": kohort_broker.bootstrap_servers, "group.id": kohort_group}
    consumer = Consumer({**where, "auto.offset.reset": "earliest"})
    consumer.subscribe([kohort_topic])
    assert [each.value() for each in consumer.consume(2, 60)] == [b"one", b"two"]
    consumer.close()
"""


def source_tree(folder: Path) -> Path:
    """A copy of the sources of the package, without anything that was built."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=LEFT_BEHIND)
    for name in ("LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py"):
        shutil.copy2(ROOT / name, folder)
    (folder / "tests").mkdir()
    (folder / "tests" / "test_of_ours.py").touch()  # setuptools would take it along
    return folder


def archive_of(tree: Path) -> Path:
    """Build the archive of sources."""
    return _built(tree, "build_sdist")


def wheel_of(tree: Path) -> Path:
    """Build the wheel for this Python, with the tools that are installed."""
    return _built(tree, "build_wheel")


def _built(tree: Path, kind: str) -> Path:
    code = f"from setuptools import build_meta; build_meta.{kind}({str(tree.parent)!r})"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    suffix = ".whl" if kind == "build_wheel" else ".tar.gz"
    (made,) = (path for path in tree.parent.iterdir() if path.name.endswith(suffix))
    return made


def unpacked(archive: Path, folder: Path) -> Path:
    """Unpack the archive of sources and return its tree."""
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    (tree,) = folder.iterdir()
    return tree


def below(folder: Path) -> set[str]:
    """The files of a folder of sources, by their paths from there."""
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {str(path) for path in files if "egg-info" not in str(path)}
