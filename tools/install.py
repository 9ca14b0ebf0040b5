"""Prepare a fresh clone: system tools, .venv, this package, and Apache Kafka for the tests.

It uses only the standard library, because it runs before anything is installed. Each part leaves a
stamp with a fingerprint of its sources, so that the next run starts at once, and a changed
constraint, dependency or kernel is installed again.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
KAFKA_POM = ROOT / "tests" / "real_kafka" / "pom.xml"
KAFKA_LIBS = ROOT / "build" / "kafka-libs"
CONNECTOR_POM = ROOT / "benchmarks" / "spark_connector.xml"
CONNECTOR_JARS = ROOT / "build" / "spark-connector"
JAVA_MINIMUM = 17


@dataclass(frozen=True, slots=True)
class Tool:
    """A system tool: how to detect it, and the Debian packages that provide it."""

    name: str
    is_present: Callable[[], bool]
    packages: tuple[str, ...]
    required: bool = True


def main() -> int:
    """Install what the goal needs; return 0 if everything required is present."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("goal", choices=["demo", "quick", "test"])
    goal = parser.parse_args().goal
    wanted = fingerprint(package_sources())
    fresh = stamp_of(VENV) != wanted
    if not provide(tools_for(goal, fresh=fresh)):
        return 1
    if fresh:
        install_package()
        write_stamp(VENV, wanted)
    compile_sources()
    if goal == "test" and has_java() and has_maven():
        fetch_kafka()
        fetch_connector()
    return 0


# ------------------------------------------------------------------------------- system tools


def tools_for(goal: str, *, fresh: bool) -> list[Tool]:
    """Return the system tools that the goal needs; a compiler only if there is code to compile."""
    tools = []
    if fresh:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        tools += [
            Tool("a C compiler", has_compiler, ("gcc", "libc6-dev")),
            Tool("Python's header files", has_headers, (f"{version}-dev",)),
            Tool("Python's venv module", has_venv, (f"{version}-venv",)),
        ]
    if goal != "quick":
        name = f"Java {JAVA_MINIMUM} or newer"
        tools.append(Tool(name, has_java, ("default-jre-headless",), required=goal == "demo"))
    if goal == "test":
        tools.append(Tool("a Java compiler", has_javac, ("default-jdk-headless",), required=False))
        tools.append(Tool("Maven", has_maven, ("maven",), required=False))
    return tools


def provide(tools: Iterable[Tool]) -> bool:
    """Install missing tools if allowed, otherwise print the command; return False if blocked."""
    missing = [tool for tool in tools if not tool.is_present()]
    if missing and may_install():
        say(f"Not found: {names_of(missing)}. Installing with apt-get: {packages_of(missing)}")
        apt_get_install(packages_of(missing).split())
        missing = [tool for tool in missing if not tool.is_present()]
    if missing:
        say(f"Not found: {names_of(missing)}. {advice(missing)}")
    return not any(tool.required for tool in missing)


def names_of(tools: Iterable[Tool]) -> str:
    """Return the names of the tools as text."""
    return ", ".join(tool.name for tool in tools)


def packages_of(tools: Iterable[Tool]) -> str:
    """Return the Debian packages for the tools, as typed on a command line."""
    return " ".join(package for tool in tools for package in tool.packages)


def advice(missing: Iterable[Tool]) -> str:
    """Return the command line that installs the missing tools."""
    if shutil.which("apt-get") is None:
        return "Install it with the package manager of your system, then run this again."
    command = f"apt-get install -y --no-install-recommends {packages_of(missing)}"
    return f"Type this, then run it again:\n    sudo {command}"


def may_install() -> bool:
    """Whether this is root on a machine of Debian's family."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def apt_get_install(packages: Iterable[str]) -> None:
    """Install Debian packages; after a failure, the tools are still missing."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], env=environment, check=False)
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    subprocess.run(install, env=environment, check=False, stdout=subprocess.DEVNULL)


def has_compiler() -> bool:
    """Whether a C compiler is named by CC or is on the PATH."""
    return any(shutil.which(name) for name in (os.environ.get("CC", "cc"), "gcc", "clang"))


def has_headers() -> bool:
    """Whether an extension can be compiled for the Python that runs this."""
    return Path(sysconfig.get_path("include"), "Python.h").exists()


def has_venv() -> bool:
    """Whether this Python can create a virtual environment; Debian packages that separately."""
    return all(importlib.util.find_spec(module) for module in ("venv", "ensurepip"))


def has_javac() -> bool:
    """Whether `javac` is on the PATH."""
    return shutil.which("javac") is not None


def has_chromium() -> bool:
    """Whether a browser can be driven by Selenium."""
    return (
        shutil.which("chromedriver") is not None
        and importlib.util.find_spec("selenium") is not None
    )


def has_kdc() -> bool:
    """Whether a KDC of MIT Kerberos can be started, and the client's package is installed."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin:/sbin"
    programs = ("krb5kdc", "kadmin.local", "kdb5_util", "kinit")
    return all(shutil.which(name, path=path) for name in programs) and (
        importlib.util.find_spec("gssapi") is not None
    )


def has_maven() -> bool:
    """Whether Maven is on the PATH; it fetches Apache Kafka for the tests."""
    return shutil.which("mvn") is not None


def has_java() -> bool:
    """Whether the Java that Spark will find (JAVA_HOME, then the PATH) is new enough."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or not Path(java).exists():
        return False
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(\d+)', answer.stderr)
    return version is not None and int(version[1]) >= JAVA_MINIMUM


# ----------------------------------------------------------------------------- Python packages


def package_sources() -> list[Path]:
    """Return the files that determine what is installed and compiled."""
    fixed = [ROOT / name for name in ("pyproject.toml", "setup.py", "constraints.txt")]
    return fixed + sorted((ROOT / "src").rglob("*.py[xd]"))


def install_package() -> None:
    """Create .venv and install this checkout into it, editable, with all test dependencies."""
    python = VENV / "bin" / "python"
    if not python.exists():
        say("Installing everything into .venv. Spark is a download of about 0.5 GB, once.")
        say("This takes a few minutes, and says nothing more unless something fails.")
        run([sys.executable, "-m", "venv", "--clear", str(VENV)])
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pip += ["--constraint", "constraints.txt"]
    run([*pip, "pip", "setuptools", "Cython"])
    # Not isolated, so that the constrained tools build it, and a rebuild needs no network.
    run([*pip, "--no-build-isolation", "--editable", ".[dev]"])


def compile_sources() -> None:
    """Compile what pip compiles of any package, but not of one that is installed editable.

    Python also compiles a module when it is first imported, but not if it may not write the result
    (PYTHONDONTWRITEBYTECODE, other users): then each process would compile the package again, which
    takes half a second.
    """
    # Continue if files do not compile: `tests/tidy` reports those.
    command = [str(VENV / "bin" / "python"), "-m", "compileall", "-q", "src"]
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)


# ------------------------------------------------------------------------------- Apache Kafka


def fetch_kafka() -> None:
    """Fetch the Apache Kafka that tests/real_kafka starts: 54 MB of jars, only once."""
    fetch_jars(KAFKA_POM, KAFKA_LIBS, "Apache Kafka for the tests, 54 MB")


def fetch_connector() -> None:
    """Fetch Spark's own Kafka connector, with which tests and benchmarks compare."""
    fetch_jars(CONNECTOR_POM, CONNECTOR_JARS, "Spark's Kafka connector for the tests, 10 MB")


def fetch_jars(pom: Path, folder: Path, what: str) -> None:
    """Fetch the jars that a POM names, unless they are there."""
    wanted = fingerprint([pom])
    if stamp_of(folder) == wanted:
        return
    say(f"Fetching {what}, once.")
    shutil.rmtree(folder, ignore_errors=True)
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    run(["mvn", "--quiet", "--batch-mode", "--file", str(pom), *goal])
    write_stamp(folder, wanted)


# ------------------------------------------------------------------------------------- helpers


def fingerprint(paths: Iterable[Path]) -> str:
    """Return a hash of the files' names and contents."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.relative_to(ROOT)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def stamp_of(folder: Path) -> str:
    """Return the fingerprint that a finished step left in its folder; empty if there is none."""
    stamp = folder / "kohort.stamp"
    return stamp.read_text() if stamp.exists() else ""


def write_stamp(folder: Path, fingerprint: str) -> None:
    """Mark the folder as finished."""
    (folder / "kohort.stamp").write_text(fingerprint)


def run(command: list[str]) -> None:
    """Run a command of the installation; if it fails, print its output and exit."""
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode:
        sys.stdout.buffer.write(done.stdout)
        sys.exit(f"kohort setup: failed with status {done.returncode}: {' '.join(command)}")


def say(text: str) -> None:
    """Tell the user what takes time or what is missing."""
    print(f"kohort setup: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
