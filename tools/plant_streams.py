"""Plant bugs into stream applications by changing the code, and report what catches each.

`tests/planted/streams.toml` has the same form as `tests/planted/regions.toml`; see `plant_regions`.
"""

from __future__ import annotations

import sys

import plant_regions

DATA = plant_regions.ROOT / "tests" / "planted" / "streams.toml"
# Prints the first rule that a seed breaks, and the seed.
CODE = """
import sys
from kohort.simulation.streams.running import run
from kohort.simulation.streams.scenario import draw
for seed in map(int, sys.argv[1:]):
    outcome = run(draw(seed))
    if not outcome.is_ok:
        print(outcome.verdict, seed, outcome.complaint[:150])
        break
"""

if __name__ == "__main__":
    sys.exit(plant_regions.main(sys.argv[1:], DATA, CODE))
