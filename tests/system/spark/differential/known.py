"""The differences that are known, from `differences.toml`, and their table in the documentation.

`python -m tests.system.spark.differential.known` rewrites the table.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.system.spark.differential.scenarios import SCENARIOS, Scenario

DATA = Path(__file__).with_name("differences.toml")
PAGE = Path(__file__).resolve().parents[4] / "docs" / "spark-migration.md"
BEGIN, END = "<!-- differences: begin -->\n", "<!-- differences: end -->\n"


@dataclass(frozen=True)
class Known:
    """A difference, in one or several scenarios.

    Attributes:
        what: What happens, for people.
        scenarios: Where it is seen: "CHANGE" for every moment, protocol and sink, else followed by
            as many of "| MOMENT | PROTOCOL | SINK" as tell it from others.
        differs: What `comparing.differences` finds.
        sparks: What Spark's own source does.
        ours: What ours does.
        why: The reason.
        sparks_say: Part of the error of Spark's own source, "" for anything.
        ours_says: Part of the error of ours, "" for anything.
        is_chance: Whether both may also do the same, as it depends on when Spark's source looks.
    """

    what: str
    scenarios: tuple[str, ...]
    differs: tuple[str, ...]
    sparks: str
    ours: str
    why: str
    sparks_say: str = ""
    ours_says: str = ""
    is_chance: bool = False

    def allows(self, found: tuple[str, ...]) -> bool:
        """Whether a run may differ in this way."""
        return found == self.differs or (self.is_chance and not found)

    def holds_in(self, scenario: Scenario) -> bool:
        """Whether it is seen in a scenario."""
        words = [scenario.change, scenario.moment, scenario.protocol, scenario.sink]
        return any(_matches(pattern, words) for pattern in self.scenarios)


def _matches(pattern: str, words: list[str]) -> bool:
    wanted = [word.strip() for word in pattern.split("|")]
    return all(want in ("*", word) for want, word in zip(wanted, words, strict=False))


def _known() -> Iterator[Known]:
    for entry in tomllib.loads(DATA.read_text(encoding="utf-8"))["difference"]:
        lists: dict[str, Any] = {name: tuple(entry.pop(name)) for name in ("scenarios", "differs")}
        yield Known(**lists, **entry)


KNOWN = tuple(_known())


def known(scenario: Scenario) -> Known | None:
    """Return the difference of a scenario, None where both sources do the same."""
    found = [each for each in KNOWN if each.holds_in(scenario)]
    assert len(found) <= 1, f"{scenario} is in {[each.what for each in found]}"
    return found[0] if found else None


def page() -> str:
    """Return the page with the table as it has to be."""
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}{''.join(_lines())}{END}{tail}"


def _lines() -> Iterator[str]:
    same = sum(known(scenario) is None for scenario in SCENARIOS)
    yield (
        f"Of {len(SCENARIOS)} scenarios (`tests/system/spark/differential/scenarios.txt`), run "
        f"against Apache Kafka with both\nsources, {same} give the same result: the same rows, "
        "columns and errors at the same time. The others,\nwith the reason for each:\n\n"
    )
    yield "| what happens | Spark's own source | kohort | why |\n|---|---|---|---|\n"
    for each in KNOWN:
        yield f"| {each.what} | {each.sparks} | {each.ours} | {each.why} |\n"


def numbers() -> Mapping[str, int]:
    """Return in how many scenarios each difference is seen."""
    return {each.what: sum(map(each.holds_in, SCENARIOS)) for each in KNOWN}


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
