"""Generate docs/internals/rules.md from the tables beside it: Kafka's rules and their tests.

A rule is a table `[C10]` with `says` (one or two sentences in our own words), `source` (proposals,
classes and tickets of Kafka) and, if no test carries its id, `decision` (the reason). A test
carries an id in its name (`test_c10_...`), its docstring or a comment, and a dialogue in its
`rules`; a range of ids does not count.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from textwrap import fill
from urllib.parse import quote_plus

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "internals" / "rules.md"
DATA = ROOT / "docs" / "internals" / "rules"
SECTIONS = ("coordinator-classic", "coordinator-consumer", "clients", "assignors", "bugs")
# Folders of tests whose data files also count as tests.
DIALOGUES = ("coordinator_dialogues", "member_dialogues")
# Numbers in these folders refer to the simulator's checkers or to docs/internals/region-rules.md.
OTHER_NUMBERS = {
    ROOT / "tests" / "simulation",
    ROOT / "tests" / "system" / "simulation",
    ROOT / "tests" / "region",
}

WIDTH = 112
WIKI = "https://cwiki.apache.org/confluence/display/KAFKA/"
TICKET = "https://issues.apache.org/jira/browse/"
CODE = "https://github.com/apache/kafka/blob/4.3.0/"

RANGE = re.compile(r"\b[CKLAB]\d{1,2}\s?-\s?[CKLAB]?\d{1,2}\b")
WRITTEN_ID = re.compile(r"\b[CKLAB]\d{1,2}\b")
NAMED_ID = re.compile(r"(?<=_)[cklab]\d{1,2}(?=_)")

HEAD = """# The rules

The behaviour of Kafka's coordinator, members and assignors, rule by rule and in our own words, with
the source of each rule and the tests that check kohort's implementation. Where Kafka 4.3 differs
from its proposals, Kafka's behaviour is the rule.

{dialogues} of the {rules} rules have dialogues: data files with the requests and events, and with
answers recorded from Kafka's broker and its own consumer, which ours are compared with
(`make record`). For each rule with tests, `tests/mutations` has a change of the code that at least
one of them detects.

`python tools/rules.py` generates this page from `docs/internals/rules/`.
"""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule from the data files; `decision` says why no test carries its id."""

    id: str
    says: str
    source: str
    decision: str = ""

    @property
    def sources(self) -> list[str]:
        """The names in `source`."""
        return self.source.split(", ")


@dataclass(frozen=True, order=True, slots=True)
class Proof:
    """One test that carries a rule's id: its path from the root, and its name (may be empty)."""

    path: str
    name: str


def sections() -> dict[str, list[Rule]]:
    """Return the rules of each section by its title, ordered by number."""
    found = {}
    for name in SECTIONS:
        data = tomllib.loads((DATA / f"{name}.toml").read_text(encoding="utf-8"))
        title = data.pop("title")
        found[title] = [
            Rule(rule_id, **joined(data[rule_id])) for rule_id in sorted(data, key=number)
        ]
    return found


def joined(texts: dict[str, str]) -> dict[str, str]:
    """Return the texts of a rule, each as one line; they are wrapped in the file."""
    return {name: " ".join(text.split()) for name, text in texts.items()}


def number(rule_id: str) -> int:
    """Return the number of a rule within its family."""
    return int(rule_id[1:])


@cache
def proofs() -> dict[str, set[Proof]]:
    """Return the tests that carry each id."""
    found: dict[str, set[Proof]] = {}
    folder = ROOT / "tests"
    dialogues = (each for name in DIALOGUES for each in sorted((folder / name).rglob("*.toml")))
    for path in (*sorted(folder.rglob("*.py")), *dialogues):
        if not OTHER_NUMBERS.isdisjoint(path.parents):
            continue
        text = path.read_text(encoding="utf-8")
        ids = ids_in_tests(text) if path.suffix == ".py" else ids_in_dialogues(text)
        for rule_id, name in ids:
            found.setdefault(rule_id, set()).add(Proof(path.relative_to(ROOT).as_posix(), name))
    return found


def ids_in_tests(text: str) -> Iterator[tuple[str, str]]:
    """Return each id with the test function that carries it in name, docstring or comments."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if not node.name.startswith("test_"):
                continue
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            words = "\n".join(lines[first - 1 : node.end_lineno])
            for rule_id in written_ids(words) | {n.upper() for n in NAMED_ID.findall(node.name)}:
                yield rule_id, node.name


def ids_in_dialogues(text: str) -> Iterator[tuple[str, str]]:
    """Return each id with the dialogue that names it among its `rules`."""
    for name, dialogue in tomllib.loads(text).items():
        if isinstance(dialogue, dict):
            yield from ((rule_id, name) for rule_id in dialogue.get("rules", ()))


def written_ids(text: str) -> set[str]:
    """Return the ids in a text, except the ends of a range."""
    return set(WRITTEN_ID.findall(RANGE.sub("", text)))


def unproven(rules: dict[str, list[Rule]], found: dict[str, set[Proof]]) -> list[str]:
    """Return the ids of rules that have neither a test nor a decision."""
    every = [rule for section in rules.values() for rule in section]
    return [rule.id for rule in every if rule.id not in found and not rule.decision]


def recorded(found: dict[str, set[Proof]]) -> set[str]:
    """Return the ids of rules that have a dialogue."""
    return {rule_id for rule_id, tests in found.items() if any(map(_is_dialogue, tests))}


def _is_dialogue(proof: Proof) -> bool:
    return proof.path.endswith(".toml")


def page() -> str:
    """Return the whole page."""
    found = proofs()
    sources = tomllib.loads((DATA / "sources.toml").read_text(encoding="utf-8"))
    counts = {"dialogues": len(recorded(found)), "rules": sum(map(len, sections().values()))}
    parts, named = [HEAD.format_map(counts)], set()
    for title, rules in sections().items():
        parts.append(f"## {title}\n")
        parts += [entry(rule, sorted(found.get(rule.id, ()))) for rule in rules]
        named |= {name for rule in rules for name in rule.sources}
    links = [f"[{name}]: {address(name, sources)}" for name in sorted(named)]
    paths = sorted({proof.path for tests in found.values() for proof in tests})
    links += [
        f"[{short(path)}]: ../../{path}" for path in paths if f"[{short(path)}]" in "".join(parts)
    ]
    return "\n".join([*parts, *links, ""])


def entry(rule: Rule, tests: list[Proof]) -> str:
    """Return a rule as Markdown, with an anchor; its links are defined at the end of the page."""
    sources = ", ".join(f"[{name}]" for name in rule.sources)
    anchor = f'<a id="{rule.id.lower()}"></a>'
    says = wrapped(f"{anchor}**{rule.id}** {rule.says}")
    parts = [says, wrapped(f"*From* {sources}.")]
    if tests:
        parts.append(wrapped(f"*Tests* {'; '.join(test_links(tests))}."))
    if rule.decision or not tests:
        parts.append(wrapped(f"*Decision* {rule.decision or 'none'}."))
    return "  \n".join(parts) + "\n"


def wrapped(text: str) -> str:
    """Return a text in lines of at most `WIDTH`, unless a word is longer."""
    return fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def address(name: str, sources: dict[str, dict[str, str]]) -> str:
    """Return the address of a proposal, a ticket or a class."""
    if name.startswith("KIP-"):
        return WIKI + quote_plus(f"{name}: {sources['proposals'][name]}", safe="")
    if name.startswith("KAFKA-"):
        return TICKET + name
    return f"{CODE}{sources['classes'][name]}/{name}.java"


def test_links(tests: list[Proof]) -> Iterator[str]:
    """Return, for each test file, the names of its tests and its link."""
    for path, group in groupby(tests, key=lambda proof: proof.path):
        names = ", ".join(f"`{proof.name}`" for proof in group if proof.name)
        yield f"{names} in [{short(path)}]" if names else f"[{short(path)}]"


def short(path: str) -> str:
    """Return the path of a test file as shown on the page."""
    return path.removeprefix("tests/")


def main() -> None:
    """Write the page, and list outdated decisions about rules without a test."""
    PAGE.write_text(page(), encoding="utf-8")
    rules, found = sections(), proofs()
    every = [rule for section in rules.values() for rule in section]
    print("no test and no decision:", *unproven(rules, found))
    print(
        "has a test now, drop the decision:", *(r.id for r in every if r.decision and r.id in found)
    )
    print(f"{sum(rule.id in found for rule in every)} of {len(every)} rules have a test")


if __name__ == "__main__":
    main()
