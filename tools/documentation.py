"""Build the documentation as a site, strictly: `make docs`. Its settings are docs/site/conf.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "site"


def build(target: Path) -> subprocess.CompletedProcess[str]:
    """Build the site into a folder; a broken link or an invalid docstring is an error.

    Args:
        target: The folder.

    Returns:
        The finished build, with its errors in `stdout`.
    """
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"]
    command += ["--builder", "html", "--conf-dir", "docs/site", "--doctree-dir"]
    command += [str(target / ".doctrees"), ".", str(target)]
    return subprocess.run(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def main() -> int:
    """Build the site, and print its location or the errors."""
    built = build(SITE)
    print(built.stdout, end="")
    if built.returncode == 0:
        print(f"The site is in {(SITE / 'index.html').relative_to(ROOT)}")
    return built.returncode


if __name__ == "__main__":
    sys.exit(main())
