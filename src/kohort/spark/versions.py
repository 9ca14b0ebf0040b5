"""The version of Spark that the source needs, and the error for older ones."""

from __future__ import annotations

from importlib.util import find_spec

from kohort.errors import KohortError

NEEDED = "4.2"
# Since this version, Spark tells Python sources which batch is finished.
ADMISSION_CONTROL = "pyspark.sql.streaming.datasource"


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
