"""`kohort simulate`: run groups in virtual time under faults, and compare group protocols."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from kohort.errors import ConfigError

if TYPE_CHECKING:
    from kohort.cli.simulating_seeds import Seeded, Simulator

S = TypeVar("S", bound="Seeded")
_WHAT_IF_RUNS = 5
_RUNS = 100


Protocol = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="classic, cooperative, consumer (KIP-848), client-side (the same, members assign),"
        " draft, migration, or all of these in turn; region: consistent regions; streams: stream"
        " applications; transactions: transactional producers.",
    ),
]
Faults = Annotated[
    str, typer.Option(metavar="KINDS", help="none, all (the seed chooses), or a list: kill,pause.")
]


def simulate(
    seed: Annotated[int, typer.Option(min=0, help="First seed.")] = 1,
    runs: Annotated[
        int | None,
        typer.Option(min=0, help="Number of seeds; 0: until Ctrl-C.", show_default="100"),
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
        typer.Option(metavar="FILE", help="Compare the group protocols on this scenario."),
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Repeat a failing scenario, with its trace."),
    ] = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="Run the first seed only, and print every event.")
    ] = False,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Store shrunk failing scenarios there, and continue."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for each run.")] = False,
) -> None:
    """Run consumer groups in virtual time under faults, and check every rule after every event.

    The seed determines everything: the same seed gives the same run, event by event. Exit code 0 if
    no rule was broken; 1 if one was: then the failing seed is shrunk to its smallest scenario.

    With --scenario: how many partitions move, in how many rounds, and how long they have no owner
    when the members of your file are restarted, slow or killed, under each group protocol.
    """
    from kohort.cli import simulating
    from kohort.simulation.runs.campaign import REGION, STREAMS, TRANSACTIONS, Choice, parse_faults

    named = bool(members or minutes or scenario or faults != "all")
    simulators = {REGION: _regions, STREAMS: _streams, TRANSACTIONS: _transactions}
    if protocol in simulators:
        raise typer.Exit(simulators[protocol](named, seed, runs, (replay, trace, keep, as_json)))
    if scenario is not None and replay is not None:
        raise ConfigError("give either --scenario or --replay")
    if scenario is not None:
        raise typer.Exit(simulating.what_if(scenario, protocol, runs or _WHAT_IF_RUNS, as_json))
    if replay is not None:
        raise typer.Exit(simulating.replay(replay, as_json))
    kinds = parse_faults(faults)
    choice = Choice(protocol=protocol, members=members, minutes=minutes, faults=kinds)
    if trace:
        raise typer.Exit(simulating.trace(choice.scenario(seed), as_json))
    raise typer.Exit(
        simulating.seeds(choice, _seeds(seed, runs), _RUNS if runs is None else runs, keep, as_json)
    )


def _seeds(first: int, runs: int | None) -> Iterable[int]:
    """Yield `runs` seeds; endlessly if 0."""
    wanted = _RUNS if runs is None else runs
    return range(first, first + wanted) if wanted else count(first)


def _seeded(
    simulator: Simulator[S],
    seed: int,
    runs: int | None,
    given: tuple[Path | None, bool, Path | None, bool],
) -> int:
    """Simulate scenarios that the seed determines completely; return the exit code."""
    replay, trace, keep, as_json = given
    if replay is not None:
        return simulator.replay(replay, as_json)
    if trace:
        return simulator.trace(simulator.draw(seed), as_json)
    return simulator.seeds(_seeds(seed, runs), keep, as_json)


def _regions(
    is_sized: bool,
    seed: int,
    runs: int | None,
    given: tuple[Path | None, bool, Path | None, bool],
) -> int:
    """Simulate regions; return the exit code."""
    from kohort.cli.simulating_seeds import of_regions

    if is_sized:
        raise ConfigError("the seed determines a region's members, minutes and faults")
    return _seeded(of_regions(), seed, runs, given)


def _streams(
    is_sized: bool,
    seed: int,
    runs: int | None,
    given: tuple[Path | None, bool, Path | None, bool],
) -> int:
    """Simulate stream applications; return the exit code."""
    from kohort.cli.simulating_seeds import of_streams

    if is_sized:
        raise ConfigError("the seed determines a stream application's members, minutes and faults")
    return _seeded(of_streams(), seed, runs, given)


def _transactions(
    is_sized: bool,
    seed: int,
    runs: int | None,
    given: tuple[Path | None, bool, Path | None, bool],
) -> int:
    """Simulate transactions, which the seed determines completely; return the exit code."""
    from kohort.cli import simulating_transactions as transactions

    replay, trace, keep, as_json = given
    if is_sized or replay is not None:
        raise ConfigError(
            "the seed determines the whole history: give only --seed, --runs or --trace"
        )
    if trace:
        return transactions.trace(seed, as_json=as_json)
    return transactions.seeds(_seeds(seed, runs), goes_on=keep is not None, as_json=as_json)
