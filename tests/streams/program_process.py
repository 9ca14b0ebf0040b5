"""A process that runs a program until SIGTERM.

python -m tests.streams.program_process ADDRESS NAME STATE_DIR COMMIT_INTERVAL_MS
"""

from __future__ import annotations

import logging
import sys

from kohort.streams.settings import StreamSettings
from tests.streams.flights import build

log = logging.getLogger("program")

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    address, name, state_dir, commit_interval_ms = sys.argv[1:]
    settings = StreamSettings(commit_interval_ms=int(commit_interval_ms))
    build(name).run(
        bootstrap_servers=address,
        state_dir=state_dir,
        settings=settings,
        session_timeout_ms=6_000,  # so long the tests of killed processes wait
        heartbeat_interval_ms=1_000,
    )
    log.info("run has returned")
