"""Where an application and the processes of its sources meet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.spark.completion.control import (
    LISTENING,
    BatchDone,
    Control,
    ControlError,
    application_directory,
    freeze,
    freeze_after,
    is_drained,
    is_drained_after,
    is_unique,
    notify,
    sources_in,
)

END = {"batch": 7, "nonce": "ab12", "topics": {"flights": {"0": [120, 180], "1": [95, 95]}}}
LATER = {"batch": 8, "nonce": "ab12", "topics": {"flights": {"0": [180, 190], "1": [95, 95]}}}


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files of the test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def control() -> Iterator[Control]:
    made = Control()
    yield made
    made.close()


def application() -> Path:
    return application_directory(os.getppid())


def test_a_word_arrives(control: Control) -> None:
    assert control.last_done() is None
    said = BatchDone("run", 7, END, False)
    notify(sources_in(application()), said)
    assert control.last_done() == said
    assert control.done_of(END) == said
    assert control.done_of(LATER) is None


def test_every_word_is_heard_however_quickly_they_follow(control: Control) -> None:
    for batch in range(200):
        notify([control.directory], BatchDone("run", batch, {**END, "batch": batch}, False))
        heard = control.last_done()
        assert heard is not None
        assert heard.batch_id == batch


def test_words_of_two_queries_do_not_replace_each_other(control: Control) -> None:
    """As long as the listener cannot know whose a source is, it tells all of them."""
    ours, other = (
        BatchDone("ours", 7, END, True),
        BatchDone("other", 7, {**END, "nonce": "cd34"}, False),
    )
    notify([control.directory], ours)
    notify([control.directory], other)
    assert control.done_of(END) == ours


def test_a_word_to_a_source_that_has_ended_is_nothing() -> None:
    control = Control()
    sources = sources_in(application())
    control.close()
    notify(sources, BatchDone("run", 7, END, False))
    assert control.last_done() is None
    assert sources_in(application()) == []


def test_a_word_half_written_is_not_heard(control: Control) -> None:
    draft = control.directory / ".done-run.1.2"
    draft.write_text('{"run_id": ')
    assert control.last_done() is None


def test_frozen_at_once(control: Control) -> None:
    assert not control.is_frozen(END)
    freeze(control.directory)
    assert control.is_frozen(LATER)
    assert not is_drained(control.directory)
    control.acknowledge()
    assert is_drained(control.directory)


def test_frozen_after_a_batch(control: Control) -> None:
    """For a drain that cannot know yet which of the sources is its query's."""
    freeze_after([control.directory], json.loads(json.dumps(END)))
    freeze_after([control.directory], {**END, "nonce": "cd34"})
    assert not control.is_frozen(LATER)
    assert control.is_frozen(END)
    assert control.is_frozen(LATER)
    assert not is_drained_after(control.directory, END)
    control.acknowledge()
    assert is_drained_after(control.directory, END)
    assert not is_drained_after(control.directory, {**END, "nonce": "cd34"})


def test_a_source_sees_that_there_is_a_listener(control: Control) -> None:
    assert not control.has_listener
    (application() / LISTENING).touch()
    assert control.has_listener


def test_a_listener_that_says_nothing_is_another_sessions(
    control: Control, caplog: pytest.LogCaptureFixture
) -> None:
    (application() / LISTENING).touch()
    for _ in range(4):
        control.count_finished()
    assert not control.has_listener
    assert caplog.text.count("Call install(spark) with the session") == 1


def test_words_come_late_but_they_come(control: Control) -> None:
    (application() / LISTENING).touch()
    control.count_finished()
    control.count_finished()
    notify([control.directory], BatchDone("run", 0, END, False))
    for _ in range(4):
        control.count_finished()
    assert control.has_listener


def test_only_a_manifest_with_a_nonce_is_of_one_query() -> None:
    assert is_unique(END)
    assert not is_unique({"epoch": 3, "operator": "north", "topics": {}})


def test_a_directory_that_others_can_write_to_is_refused(temporary: Path) -> None:
    """Words decide what is committed to the group."""
    root = temporary / f"kohort-{os.geteuid()}"
    root.mkdir(mode=0o700)
    root.chmod(0o770)
    with pytest.raises(ControlError, match=r"770; it must be user \d+'s alone, with 700"):
        application()


def test_a_link_to_a_directory_is_refused(temporary: Path) -> None:
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (temporary / f"kohort-{os.geteuid()}").symlink_to(elsewhere)
    with pytest.raises(ControlError, match="is not a directory"):
        application()


def test_a_source_works_where_the_directory_is_refused(
    temporary: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (temporary / f"kohort-{os.geteuid()}").write_text("")
    control = Control()
    assert not control.has_listener
    assert control.last_done() is None
    assert "set the option checkpointLocation" in caplog.text
    freeze(control.directory)
    assert control.frozen
    control.close()


def test_what_killed_applications_leave_is_removed() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    left = application_directory(process.pid)
    process.communicate(b"\n")
    again = left.with_name(f"{os.getpid()}-1")
    again.mkdir()
    Control().close()
    assert not left.exists()
    assert not again.exists()
    assert application().exists()
