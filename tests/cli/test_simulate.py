"""`kohort simulate` as a person types it; a planted bug shows what a finding looks like."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kohort.cli.main import app
from kohort.errors import ConfigError
from kohort.simulation.groups.world import ViolationError
from tests.simulation.planting.catching import bugs

EXAMPLES = Path(__file__).parents[2] / "examples" / "scenarios"
QUICK = ("--minutes", "1")

SCENARIO = """
minutes = 3

[[topics]]
name = "t"
partitions = 4

[[members]]
name = "m"
count = 2
topics = ["t"]
session_timeout_ms = 10000
max_poll_interval_ms = 20000

[rolling_restart]
at_ms = 60000
every_ms = 20000
down_ms = 1000
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Findings are written into the present folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def planted() -> Iterator[None]:
    """Every group has a bug that some checker finds quickly."""
    bug = next(each for each in bugs() if each.name == "assignments mixed up")
    with bug.plant():
        yield


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["simulate", *arguments])


def objects(result: Result) -> list[dict[str, object]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_each_run_is_one_object_and_the_same_each_time() -> None:
    first = objects(run("--seed", "5", "--runs", "3", *QUICK, "--json"))
    second = objects(run("--seed", "5", "--runs", "3", *QUICK, "--json"))
    assert first == second
    assert [each["seed"] for each in first] == [5, 6, 7]
    assert {each["verdict"] for each in first} == {"ok"}
    assert len({str(each["trace"]) for each in first}) == 3
    assert all(int(str(each["events"])) > 100 for each in first)


def test_the_closing_table_has_what_happened() -> None:
    shown = run("--runs", "2", *QUICK)
    assert shown.exit_code == 0
    for text in ("2, all ok", "virtual time", "events", "rebalances", "faults", "rows taken"):
        assert text in shown.stdout
    assert re.search(r"classic member \d+/\d+", shown.stdout)


def test_members_protocol_and_faults_are_what_one_says() -> None:
    chosen = ("--members", "2", "--protocol", "cooperative", "--faults", "kill,pause")
    runs = objects(run("--runs", "3", *QUICK, *chosen, "--json"))
    assert {each["members"] for each in runs} == {2}
    assert {each["protocol"] for each in runs} == {"cooperative"}
    kinds = {kind for each in runs for kind in dict(each["faults"])}  # type: ignore[call-overload]  # it is JSON: an object
    assert kinds == {"kill", "pause"}


def test_without_faults_nothing_is_read_twice() -> None:
    runs = objects(run("--runs", "3", *QUICK, "--faults", "none", "--json"))
    assert [(each["faults"], each["repeated"]) for each in runs] == [({}, 0)] * 3


def test_the_trace_of_a_seed_is_one_line_for_each_event() -> None:
    shown = run("--seed", "4", *QUICK, "--protocol", "classic", "--trace")
    lines = [line for line in shown.stdout.splitlines() if re.match(r" *\d+ \S+ +\S+", line)]
    assert len(lines) > 100
    assert "one column" in shown.stdout
    assert shown.stdout.rstrip().endswith("ok")


@pytest.mark.usefixtures("planted")
def test_a_finding_is_shrunk_kept_and_can_be_replayed(folder: Path) -> None:
    shown = run("--protocol", "classic", "--runs", "30", "--minutes", "2", "--members", "3")
    assert shown.exit_code == 1
    found = re.search(r"kohort simulate --replay (\S+)", shown.stdout)
    assert found is not None
    assert "shrunk from" in shown.stdout
    assert "1 failed" in shown.stdout
    drawn = re.search(r"kohort simulate (--seed .*?)  \(as drawn\)", shown.stdout)
    assert drawn is not None
    assert run(*drawn[1].split()).exit_code == 1
    again = run("--replay", found[1])
    assert again.exit_code == 1
    verdict = (folder / found[1]).read_text().splitlines()[0].removeprefix("# ")
    assert again.stdout.rstrip().endswith(verdict)


@pytest.mark.usefixtures("planted")
def test_with_a_folder_for_findings_it_goes_on(folder: Path) -> None:
    result = run("--protocol", "classic", "--runs", "3", "--keep", "found", "--json")
    assert result.exit_code == 1
    failed = [each for each in objects(result) if each["verdict"] != "ok"]
    assert len(objects(result)) == 3
    assert len(list((folder / "found").iterdir())) == len(failed) > 0
    assert all("[[members]]" in str(each["scenario"]) for each in failed)


def test_protocols_are_compared_side_by_side(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(SCENARIO)
    shown = run("--scenario", str(path), "--runs", "1")
    assert shown.exit_code == 0
    heading = next(line for line in shown.stdout.splitlines() if "cooperative" in line)
    assert heading.split()[:3] == ["classic", "cooperative", "consumer"]
    for row in ("rounds", "partitions moved", "unowned, p50", "unowned, p99"):
        assert row in shown.stdout


def test_a_cooperative_group_gives_up_only_what_moves(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(SCENARIO.replace("count = 2", "count = 4").replace("= 4\n", "= 12\n", 1))
    costs = objects(run("--scenario", str(path), "--runs", "1", "--json"))
    by_name = {str(each["protocol"]): each for each in costs}
    eager, cooperative = by_name["classic"], by_name["cooperative"]
    assert int(str(cooperative["times_unowned"])) < int(str(eager["times_unowned"])) / 2
    assert cooperative["verdicts"] == eager["verdicts"] == []


def test_static_members_move_nothing_in_a_quick_restart(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(SCENARIO.replace("count = 2", 'count = 2\ninstance = "i"'))
    costs = objects(run("--scenario", str(path), "--runs", "1", "--json"))
    assert [each["partitions_moved"] for each in costs] == [0] * len(costs)


@pytest.mark.parametrize("path", sorted(EXAMPLES.iterdir()), ids=lambda path: path.stem)
def test_every_example_runs(path: Path) -> None:
    result = run("--scenario", str(path), "--runs", "1", "--protocol", "consumer", "--json")
    assert result.exit_code == 0
    assert [each["verdicts"] for each in objects(result)] == [[]]


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ("minutes = 3", "minuts = 3", "did you mean 'minutes'"),
        ("partitions = 4", "partition = 4", "did you mean 'partitions'"),
        ("partitions = 4", 'partitions = "4"', "partitions in [[topics]] cannot be '4'"),
        ("count = 2", "count = 0", "count in [[members]] cannot be 0"),
        ('topics = ["t"]', 'topics = ["u"]', "no topic 'u'"),
        ("every_ms = 20000", "every = 20000", "did you mean 'every_ms'"),
        ("at_ms = 60000", "at_ms = 600000", "after the end"),
        ("[[members]]", "[members]", "[[members]]"),
        ("minutes = 3", "minutes = ", "not TOML"),
        (
            "[rolling_restart]",
            "[[faults]]\nkind = 'kil'\nat_ms = 1\n[rolling_restart]",
            "did you mean 'kill'",
        ),
        ('name = "m"', "", "name"),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(
    tmp_path: Path, before: str, after: str, text: str
) -> None:
    path = tmp_path / "s.toml"
    assert before in SCENARIO
    path.write_text(SCENARIO.replace(before, after, 1))
    result = run("--scenario", str(path))
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).startswith(str(path))
    assert text in str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--protocol", "cooperativ"), "did you mean 'cooperative'"),
        (("--faults", "pauze"), "did you mean 'pause'"),
        (("--scenario", "missing.toml"), "missing.toml: No such file"),
        (("--scenario", "a", "--replay", "b"), "either"),
    ],
)
def test_wrong_options_are_named(arguments: tuple[str, ...], text: str) -> None:
    result = run(*arguments)
    assert isinstance(result.exception, ConfigError)
    assert text in str(result.exception)


def test_regions_are_simulated_too() -> None:
    done = CliRunner().invoke(app, ["simulate", "--protocol", "region", "--runs", "2", "--json"])
    assert done.exit_code == 0
    assert [json.loads(line)["verdict"] for line in done.stdout.splitlines()] == ["ok", "ok"]
    with pytest.raises(ConfigError, match="the seed determines"):
        CliRunner().invoke(
            app, ["simulate", "--protocol", "region", "--members", "3"], catch_exceptions=False
        )


def test_transactions_are_simulated_too() -> None:
    args = ["simulate", "--protocol", "transactions"]
    done = CliRunner().invoke(app, [*args, "--runs", "5"])
    assert (done.exit_code, done.output) == (0, "5 histories of transactions, 0 broke a rule\n")
    done = CliRunner().invoke(app, [*args, "--runs", "2", "--json"])
    assert [json.loads(line)["verdict"] for line in done.output.splitlines()] == ["ok"] * 2
    done = CliRunner().invoke(app, [*args, "--seed", "7", "--trace"])
    assert (done.exit_code, done.output.splitlines()[-1]) == (0, "ok")
    with pytest.raises(ConfigError, match="the seed determines the whole"):
        CliRunner().invoke(app, [*args, "--members", "3"], catch_exceptions=False)


def test_a_region_can_be_replayed_from_its_file(tmp_path: Path) -> None:
    from kohort.simulation.regions.scenario import draw, to_json

    path = tmp_path / "region.json"
    path.write_text(to_json(draw(8)), encoding="utf-8")
    args = ["simulate", "--protocol", "region", "--replay", str(path)]
    done = CliRunner().invoke(app, args)
    assert done.exit_code == 0
    assert "complete/" in done.stdout


def test_stream_applications_are_simulated_too(tmp_path: Path) -> None:
    from kohort.simulation.streams.scenario import draw, to_json

    args = ["simulate", "--protocol", "streams"]
    done = CliRunner().invoke(app, [*args, "--seed", "8", "--runs", "1"])
    assert (done.exit_code, done.output) == (0, "1 simulated stream applications, 0 broke a rule\n")
    path = tmp_path / "streams.json"
    path.write_text(to_json(draw(8)), encoding="utf-8")
    done = CliRunner().invoke(app, [*args, "--replay", str(path)])
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "ok")
    assert "TaskStarted" in done.stdout
    with pytest.raises(ConfigError, match="the seed determines"):
        CliRunner().invoke(app, [*args, "--members", "3"], catch_exceptions=False)


def test_a_stream_application_that_breaks_a_rule_is_told_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commits_nothing(_books: object, _task: object, _offset: int) -> None:
        raise ViolationError("T1", "a test")

    monkeypatch.setattr("kohort.simulation.streams.books.Books._seal", commits_nothing)
    args = ["simulate", "--protocol", "streams", "--seed", "8", "--runs", "1", "--keep"]
    done = CliRunner().invoke(app, [*args, str(tmp_path)])
    assert done.exit_code == 1
    assert "seed 8: T1" in done.output
    kept = tmp_path / "streams-seed-8.json"
    assert f"--protocol streams --replay {kept}" in done.output.replace("\n", " ")
    assert kept.is_file()
