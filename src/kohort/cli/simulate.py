"""`kohort simulate`: run groups in virtual time under faults, and compare group protocols."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Annotated

import typer

from kohort.errors import ConfigError

_WHAT_IF_RUNS = 5
_RUNS = 100


Protocol = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="classic, cooperative, consumer (KIP-848), client-side (the same, members assign),"
        " draft, migration, or all in turn.",
    ),
]
Faults = Annotated[
    str, typer.Option(metavar="KINDS", help="none, all (the seed chooses), or kinds: kill,pause.")
]


def simulate(
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 1,
    runs: Annotated[
        int | None,
        typer.Option(min=0, help="How many seeds; 0: until Ctrl-C.", show_default="100"),
    ] = None,
    members: Annotated[
        int | None, typer.Option(min=1, help="Members of each group.", show_default="3 to 6")
    ] = None,
    protocol: Protocol = "all",
    faults: Faults = "all",
    minutes: Annotated[
        int | None,
        typer.Option(min=1, help="Simulated time with faults.", show_default="10 to 20"),
    ] = None,
    scenario: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What if: run this under each protocol, side by side."),
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Run a failing scenario again, with its trace."),
    ] = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="Run the first seed only, and print every event.")
    ] = False,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write failing scenarios there, shrunk, and go on."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for each run.")] = False,
) -> None:
    """Run consumer groups in virtual time under faults, and check every rule after every event.

    One seed decides everything: the same seed gives the same run, event by event. Exit code 0 when
    no rule was broken; 1 when one was: then the failing seed is shrunk to its smallest scenario.

    With --scenario: how many partitions move, in how many rounds, and how long they have no owner
    when the members of your file are restarted, slow or killed, under each group protocol.
    """
    from kohort.cli import simulating
    from kohort.simulation.campaign import Choice, parse_faults

    if scenario is not None and replay is not None:
        raise ConfigError("either --scenario or --replay")
    if scenario is not None:
        wanted = runs or _WHAT_IF_RUNS
        raise typer.Exit(simulating.what_if(scenario, protocol, wanted, as_json))
    if replay is not None:
        raise typer.Exit(simulating.replay(replay, as_json))
    choice = Choice(
        protocol=protocol, members=members, minutes=minutes, faults=parse_faults(faults)
    )
    if trace:
        raise typer.Exit(simulating.trace(choice.scenario(seed), as_json))
    wanted = _RUNS if runs is None else runs
    seeds = range(seed, seed + wanted) if wanted else count(seed)
    raise typer.Exit(simulating.seeds(choice, seeds, wanted, keep, as_json))
