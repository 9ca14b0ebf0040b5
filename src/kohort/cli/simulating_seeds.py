"""The implementation of `kohort simulate` for simulators whose seed determines everything."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import typer
from msgspec import Struct

from kohort.cli.simulating import cause_of
from kohort.errors import ConfigError
from kohort.simulation.runs.campaign import REGION, STREAMS
from kohort.simulation.seeded import SeededOutcome

if TYPE_CHECKING:
    from kohort.simulation.regions.scenario import RegionScenario
    from kohort.simulation.streams.scenario import StreamsScenario


class Seeded(Protocol):
    """A scenario drawn from a seed."""

    @property
    def seed(self) -> int:
        """The seed."""


S = TypeVar("S", bound=Seeded)


class Simulator(Struct, Generic[S], frozen=True):
    """The simulator of one `--protocol`.

    Attributes:
        protocol: Its name.
        plural: The simulated things, for messages.
        time_key: The JSON key of `SeededOutcome.took_ms`.
        draw: Returns the scenario of a seed.
        run: Runs a scenario; the second argument says whether the outcome has the trace.
        shrink: Returns a smaller scenario for which a predicate still holds.
        to_json: Writes a scenario.
        from_json: Reads one.
    """

    protocol: str
    plural: str
    time_key: str
    draw: Callable[[int], S]
    run: Callable[[S, bool], SeededOutcome[S]]
    shrink: Callable[[S, Callable[[S], bool]], S]
    to_json: Callable[[S], str]
    from_json: Callable[[str], S]

    def seeds(self, numbers: Iterable[int], keep: Path | None, as_json: bool) -> int:
        """Run seeds; return the exit code, 1 when a rule was broken.

        Args:
            numbers: The seeds.
            keep: Folder for failing scenarios; None: stop at the first one.
            as_json: Whether to print only a JSON object for each run.
        """
        done = failed = 0
        try:
            for seed in numbers:
                outcome = self.run(self.draw(seed), False)
                done += 1
                failed += not outcome.is_ok
                if as_json:
                    self._print(outcome)
                if not outcome.is_ok:
                    self._report(outcome, keep, as_json)
                    if keep is None:
                        break
        except KeyboardInterrupt:
            pass
        if not as_json:
            typer.echo(f"{done} simulated {self.plural}, {failed} broke a rule")
        return 1 if failed else 0

    def replay(self, path: Path, as_json: bool) -> int:
        """Run a scenario from a file with its trace; return the exit code.

        Raises:
            ConfigError: The file cannot be read, or is not a scenario.
        """
        try:
            scenario = self.from_json(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, ConfigError) as error:
            raise ConfigError(f"{path}: {cause_of(error)}") from None
        return self.trace(scenario, as_json)

    def trace(self, scenario: S, as_json: bool) -> int:
        """Run a scenario and print every event; return the exit code."""
        outcome = self.run(scenario, True)
        if as_json:
            self._print(outcome, lines=outcome.lines)
        else:
            for line in (*outcome.lines, "", outcome.complaint or outcome.verdict):
                typer.echo(line)
        return 0 if outcome.is_ok else 1

    def _report(self, outcome: SeededOutcome[S], keep: Path | None, as_json: bool) -> None:
        """Write the smallest scenario that fails in the same way to a file."""

        def fails(scenario: S) -> bool:
            return self.run(scenario, False).verdict == outcome.verdict

        smallest = self.shrink(outcome.scenario, fails)
        folder = keep or Path()
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.protocol}-seed-{outcome.scenario.seed}.json"
        path.write_text(self.to_json(smallest), encoding="utf-8")
        if not as_json:
            typer.echo(f"seed {outcome.scenario.seed}: {outcome.complaint}")
            typer.echo(f"replay: kohort simulate --protocol {self.protocol} --replay {path}")

    def _print(self, outcome: SeededOutcome[S], **more: object) -> None:
        plain = {
            "seed": outcome.scenario.seed,
            "verdict": outcome.verdict,
            "complaint": outcome.complaint,
            "events": outcome.events,
            self.time_key: outcome.took_ms,
            "notes": dict(sorted(outcome.notes.items())),
        }
        typer.echo(json.dumps({**plain, **more}))


def of_regions() -> Simulator[RegionScenario]:
    """Return the simulator of consistent regions."""
    from kohort.simulation.regions import running, scenario

    return Simulator(
        protocol=REGION,
        plural="regions",
        time_key="settled_ms",
        draw=scenario.draw,
        run=lambda each, keep: running.run(each, keep_lines=keep),
        shrink=running.shrink,
        to_json=scenario.to_json,
        from_json=scenario.from_json,
    )


def of_streams() -> Simulator[StreamsScenario]:
    """Return the simulator of stream applications."""
    from kohort.simulation.streams import running, scenario

    # Simulated processes die before they have awaited the tasks that they started.
    warnings.filterwarnings("ignore", "coroutine 'SimulatedTask", RuntimeWarning)
    return Simulator(
        protocol=STREAMS,
        plural="stream applications",
        time_key="simulated_ms",
        draw=scenario.draw,
        run=lambda each, keep: running.run(each, keep_lines=keep),
        shrink=running.shrink,
        to_json=scenario.to_json,
        from_json=scenario.from_json,
    )
