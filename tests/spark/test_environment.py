"""Log lines of an application without logging, settings of a session, and the interpreter."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import SparkContext

from kohort.client.config.security import ALIASES, SECRETS
from kohort.region import DeltaSink
from kohort.spark import (
    DeltaAppend,
    KohortDataSource,
    ListeningError,
    configure,
    install,
    region_sink,
    session_config,
)

PROGRAM = """
import logging
from kohort.spark.environment import log_like_spark

for _ in range(2):
    log_like_spark()
    logging.getLogger("kohort.delta").warning("first")
logging.basicConfig(format="mine: %(message)s")
logging.getLogger("kohort.delta").warning("second")
"""


def test_lines_have_time_and_level_until_the_program_has_handlers_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    first, again, second = done.stderr.splitlines()
    spark = r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d WARNING kohort\.delta: first"
    assert re.fullmatch(spark, first)
    assert re.fullmatch(spark, again)
    assert second == "mine: second"


def test_spark_hides_each_secret_by_its_name() -> None:
    """As Spark does it: in the names of options."""
    hidden = re.compile(session_config()["spark.redaction.regex"])
    known = {*SECRETS, *(name for name, meant in ALIASES.items() if meant in SECRETS)}
    names = [name.replace("_", ".") for name in known]
    assert [name for name in names if not hidden.search(f"kafka.{name}")] == []
    assert not hidden.search("kafka.sasl.username")


IMPORT = """
import json, os
before = dict(os.environ)
import kohort.spark
for name in kohort.spark.__all__:
    getattr(kohort.spark, name)
print(json.dumps([before, dict(os.environ)]))
"""


@pytest.fixture
def other_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The `python3` of the PATH is another interpreter, and PYSPARK_PYTHON is not set."""
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setenv("PATH", str(python.parent), prepend=os.pathsep)
    monkeypatch.setenv("PYSPARK_PYTHON", "")  # so that it is removed after the test
    monkeypatch.delenv("PYSPARK_PYTHON")


@pytest.mark.usefixtures("other_python")
def test_an_import_changes_no_environment_variable() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True
    )
    before, after = json.loads(done.stdout)
    assert "PYSPARK_PYTHON" not in before
    assert after == before


@pytest.mark.usefixtures("other_python")
@pytest.mark.parametrize(
    "call",
    [
        configure,
        session_config,
        KohortDataSource.name,  # the first that Spark's `register` calls
        lambda: DeltaAppend("table", "group"),
        lambda: region_sink(DeltaSink("table", pa.schema({"total": pa.int64()}))),
    ],
    ids=["configure", "session_config", "register", "DeltaAppend", "region_sink"],
)
def test_workers_run_the_interpreter_of_the_program(call: Callable[[], object]) -> None:
    call()
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


@pytest.mark.usefixtures("other_python")
def test_the_interpreter_of_the_user_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "./environment/bin/python")
    configure()
    assert os.environ["PYSPARK_PYTHON"] == "./environment/bin/python"


@pytest.mark.usefixtures("other_python")
def test_the_python3_of_the_path_needs_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", os.environ["PATH"].split(os.pathsep)[0] + "/python3")
    configure()
    assert "PYSPARK_PYTHON" not in os.environ


@pytest.mark.usefixtures("other_python")
@pytest.mark.parametrize(
    ("noted", "then"), [("python3", sys.executable), ("/opt/python", "/opt/python")]
)
def test_a_running_context_gets_the_interpreter(
    noted: str, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context: Any = SimpleNamespace(pythonExec=noted)
    monkeypatch.setattr(SparkContext, "_active_spark_context", context)
    configure()
    assert context.pythonExec == then


def test_another_interpreter_of_this_machine_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    other, same = tmp_path / "other", Path(sys.executable).parent / "python3"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    for chosen in (sys.executable, same, "/only/on/executors/python"):
        monkeypatch.setenv("PYSPARK_PYTHON", str(chosen))
        configure()
    assert caplog.messages == []
    monkeypatch.setenv("PYSPARK_PYTHON", str(other))
    configure()
    configure()
    (line,) = caplog.messages
    assert f"PYSPARK_PYTHON is {other}" in line
    assert sys.executable in line


@pytest.mark.usefixtures("other_python")
def test_a_late_call_says_what_a_running_jvm_keeps(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = SimpleNamespace(getInputArguments=lambda: ["-Xmx1g", "-Dmine=1"])
    factory = SimpleNamespace(getRuntimeMXBean=lambda: runtime)
    management = SimpleNamespace(ManagementFactory=factory)
    java = SimpleNamespace(lang=SimpleNamespace(management=management))
    monkeypatch.setattr(SparkContext, "_jvm", SimpleNamespace(java=java))
    configure()
    session_config(extra_java_options="-Dmine=1")
    late, options = caplog.messages
    assert "Register the source: spark.dataSource.register(" in late
    assert "without -Xss8m, and" in options


def test_install_names_a_missing_session() -> None:
    none: Any = None
    with pytest.raises(ListeningError, match="got None: this thread has no active session"):
        install(none)
