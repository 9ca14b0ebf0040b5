"""What the source needs of Spark: its version, settings of a session, the workers' interpreter."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from kohort.errors import KohortError

if TYPE_CHECKING:
    from py4j.java_gateway import JVMView

log = logging.getLogger("kohort.spark")

NEEDED = "4.2"
# Since this version, Spark tells Python sources which batch is finished.
ADMISSION_CONTROL = "pyspark.sql.streaming.datasource"

# A stopped query matches the traceback of its Python foreachBatch against a regular expression that
# recurses once per character (SPARK-39218); the JVM's default stack of 1 MB overflows.
STACK = "-Xss8m"

# Spark's default for `spark.redaction.regex`, plus our settings that it does not cover.
REDACTED = (
    "(?i)secret|password|token|access[.]?key"
    "|ssl[.]keystore[.]key|ssl[.]key[.]pem|sasl[.]jaas[.]config|oauthbearer[.]extensions|proxy[.]url"
)

# Spark sets this in workers whose log lines it collects.
_COLLECTED = "PYSPARK_SPARK_SESSION_UUID"


class SparkVersionError(KohortError, ImportError):
    """Spark is too old for this package's source, or not installed."""


def check_spark() -> None:
    """Refuse a version of Spark that cannot run the source.

    Raises:
        SparkVersionError: It is too old or not installed; the message names it.
    """
    if find_spec("pyspark") is None:
        raise SparkVersionError(
            "kohort.spark needs PySpark, which is not installed here: pip install 'kohort[spark]'"
        )
    if find_spec(ADMISSION_CONTROL) is not None:
        return
    from pyspark.version import __version__

    raise SparkVersionError(
        f"kohort.spark needs Spark {NEEDED} or newer, and this is Spark {__version__}, which does "
        "not tell a Python source which batch is finished, as a group member must know. Upgrade: "
        f"pip install 'pyspark>={NEEDED}'; or use Spark's own Kafka source, and move its "
        "checkpoint here later (kohort spark import-checkpoint)"
    )


def session_config(*, extra_java_options: str = "") -> dict[str, str]:
    """Return settings for building a `SparkSession`, before its JVM starts.

    They include `spark.redaction.regex`, with which Spark hides secrets in its output. This also
    calls `configure`, because the interpreter of the workers is not a session setting. A JVM
    outlives `spark.stop()`: if it started without these settings, as in a notebook that created
    another session before, a warning says so.

    Args:
        extra_java_options: Your own `spark.driver.extraJavaOptions`, which are kept.

    Returns:
        Keys and values for `SparkSession.builder.config`.
    """
    configure()
    options = f"{STACK} {extra_java_options}".strip()
    _warn_of_jvm_options(options)
    return {
        "spark.driver.extraJavaOptions": options,
        "spark.redaction.regex": REDACTED,
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    }


def configure() -> None:
    """Make Spark's Python workers use the current interpreter, unless PYSPARK_PYTHON is set.

    Spark runs the first `python3` on the PATH, which outside an activated environment lacks this
    package. If that is another interpreter, this sets PYSPARK_PYTHON in `os.environ`, and updates
    an existing SparkContext. Later calls change nothing.

    `session_config`, `install`, `append`, `DeltaAppend`, `region_sink` and the registration of
    `KohortDataSource` do the same. Call it yourself, before the process creates its first session,
    if Spark finds the source only by its name: the JVM outlives `spark.stop()` and keeps the
    interpreter with which it started. A later call logs a warning.
    """
    if use_this_interpreter() and _running_jvm() is not None:
        log.warning(
            "configure: Spark's JVM already runs in this process, and finds sources by their name"
            " with the interpreter that it started with, which is not %s. Register the source:"
            " spark.dataSource.register(kohort.spark.KohortDataSource)",
            sys.executable,
        )


def use_this_interpreter() -> bool:
    """Make Spark's Python workers use the current interpreter; see `configure`.

    Returns:
        Whether this changed anything.
    """
    if not sys.executable:
        return False
    chosen = os.environ.get("PYSPARK_PYTHON")
    if chosen is not None:
        _warn_of_other_interpreter(chosen)
        return False
    found = shutil.which("python3")
    if found is not None and os.path.abspath(found) == os.path.abspath(sys.executable):  # noqa: PTH100  # Path.absolute keeps "..", and resolve leaves the environment
        return False
    os.environ["PYSPARK_PYTHON"] = sys.executable
    _update_running_context()
    return True


@cache
def _warn_of_other_interpreter(chosen: str) -> None:
    """Log once that Spark runs another interpreter of this machine, perhaps without this package.

    The same interpreter may have several names in one folder. A path that only executors have is
    not an interpreter of this machine.
    """
    path = shutil.which(chosen)
    if path is None:
        return
    ours, other = Path(sys.executable), Path(path)
    if other.parent != ours.parent or other.resolve() != ours.resolve():
        log.warning(
            "PYSPARK_PYTHON is %s: Spark's Python workers run %s, not the interpreter of this"
            ' process, %s. If kohort is not installed there, queries fail with "No module named'
            " 'kohort'\": unset PYSPARK_PYTHON, or install kohort there",
            chosen,
            path,
            sys.executable,
        )


def _running_jvm() -> JVMView | None:
    """Return the JVM that PySpark has started in this process."""
    core = sys.modules.get("pyspark.core.context")
    jvm: JVMView | None = None if core is None else core.SparkContext._jvm  # noqa: SLF001  # PySpark has no public access to it
    return jvm


def _warn_of_jvm_options(options: str) -> None:
    """Log which options of `session_config` a running JVM lacks."""
    jvm = _running_jvm()
    if jvm is None:
        return
    runtime = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
    given = set(runtime.getInputArguments())
    if missing := [each for each in options.split() if each not in given]:
        log.warning(
            "session_config: Spark's JVM already runs in this process, without %s, and a new"
            " session does not change that. Restart the process (in a notebook: the kernel) and"
            " call session_config before the first session is created",
            " ".join(missing),
        )


def _update_running_context() -> None:
    """Update an existing context, which has stored the name of the interpreter to start."""
    core = sys.modules.get("pyspark.core.context")
    if core is None:
        return
    context = core.SparkContext._active_spark_context  # noqa: SLF001  # others create one
    if context is not None and context.pythonExec == "python3":
        context.pythonExec = sys.executable


def log_like_spark() -> None:
    """Format log lines like Spark's, because they end up in its log, unless logging is configured.

    If a program configures logging later, only its own handlers receive the lines. Where Spark
    collects the logs of Python workers (`spark.sql.pyspark.worker.logging.enabled`), it also
    receives lines of level INFO.
    """
    logger = logging.getLogger("kohort")
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        line = "%(asctime)s %(levelname)s %(name)s: %(message)s"
        handler.setFormatter(logging.Formatter(line, "%y/%m/%d %H:%M:%S"))
        handler.addFilter(lambda _: not logging.getLogger().handlers)
        logger.addHandler(handler)
    ours = logging.getLogger("kohort.spark")
    if _COLLECTED in os.environ and ours.level == logging.NOTSET:
        ours.setLevel(logging.INFO)
