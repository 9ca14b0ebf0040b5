"""Log lines of an application that has not set logging up, and settings of a session."""

from __future__ import annotations

import re
import subprocess
import sys

from kohort.client.config.security import ALIASES, SECRETS
from kohort.spark import session_config

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
