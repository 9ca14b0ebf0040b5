"""Kill processes at random moments and count every record: `make torture ARGS="region --kills 20"`.

    region        three workers of a region, its controller and the broker
    region-spark  two Spark applications, a worker, the controller and the broker
    workers       workers of a region that are killed, stopped and added, history after history
    streams       owners and learners of a stream application, in the middle of hand-overs
    spark         random histories of Spark queries of one group

`--help` after the name lists its options. A history that fails names its seed and where its logs
are; `--seed N` plays it again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence


def region(arguments: Sequence[str]) -> int:
    from tests.region.mixed_torture import WORKERS, main

    return main(WORKERS, arguments)


def region_spark(arguments: Sequence[str]) -> int:
    from tests.region.mixed_torture import APPLICATIONS, main

    return main(APPLICATIONS, arguments)


def workers(arguments: Sequence[str]) -> int:
    from tests.region.torture import main

    return main(arguments)


def streams(arguments: Sequence[str]) -> int:
    from tests.streams.torture import main

    return main(arguments)


def instance(arguments: Sequence[str]) -> int:
    from tests.streams.torture import main_of_instance

    return main_of_instance(arguments)


def spark(arguments: Sequence[str]) -> int:
    from tests.system.spark.torture.playing import main

    return main(arguments)


KINDS: dict[str, Callable[[Sequence[str]], int]] = {
    "region": region,
    "region-spark": region_spark,
    "workers": workers,
    "streams": streams,
    "instance": instance,
    "spark": spark,
}


def main(arguments: Sequence[str]) -> int:
    """Play what the first argument names."""
    kind = KINDS.get(arguments[0]) if arguments else None
    if kind is None:
        sys.stderr.write(__doc__ or "")
        return 2
    return kind(arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
