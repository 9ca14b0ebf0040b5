"""The process that Spark's JVM would start for a source, told line by line what Spark asks.

python -m tests.spark.runner BOOTSTRAP TOPIC SESSION_TIMEOUT_MS
"""

from __future__ import annotations

import os
import sys

from kohort.errors import KohortError
from tests.spark.playing import PlayedQuery, options


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    bootstrap, topic, session_timeout = sys.argv[1:]
    query = PlayedQuery(options(bootstrap, topic, kafka__session__timeout__ms=session_timeout))
    say(f"pid {os.getpid()}")
    try:
        for line in sys.stdin:
            try:
                answer = str(query.offer()) if line.strip() == "offer" else str(len(query.write()))
            except KohortError as error:
                answer = type(error).__name__
            say(answer)
    finally:
        query.reader.stop()
        say("stopped")


if __name__ == "__main__":
    main()
