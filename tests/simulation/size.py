"""How much is simulated: a part by `make test`, all where everything has to pass (`.ci/run`)."""

from __future__ import annotations

import os

IS_THOROUGH = bool(os.environ.get("KOHORT_REQUIRE_ALL"))
FLEET = 2_000 if IS_THOROUGH else 300
TWICE = 200 if IS_THOROUGH else 20
