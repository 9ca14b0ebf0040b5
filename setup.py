"""Build the extension modules; everything else about the package is in pyproject.toml."""

from __future__ import annotations

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCES = Path("src")


def extensions() -> list[Extension]:
    """One extension per .pyx file below src, named after its place there."""
    return [
        Extension(
            ".".join(path.relative_to(SOURCES).with_suffix("").parts),
            [str(path)],
            extra_compile_args=["-O3"],
        )
        for path in sorted(SOURCES.rglob("*.pyx"))
    ]


setup(
    ext_modules=cythonize(extensions(), build_dir="build/cython", language_level=3),
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
)
