"""Log lines of an application that has not set logging up."""

from __future__ import annotations

import re
import subprocess
import sys

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
