"""How much `make test` and `.ci/run` simulate; `make simulate` goes on until it is stopped."""

from __future__ import annotations

import os

IS_THOROUGH = bool(os.environ.get("KOHORT_REQUIRE_ALL"))
FLEET = 300
TWICE = 20
