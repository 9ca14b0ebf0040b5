"""What a bare machine is told, and when an installation counts as done."""

from __future__ import annotations

from pathlib import Path

import pytest

import install


def fake_java(folder: Path, version: str) -> None:
    """A Java home whose java prints the version as real ones do: on standard error."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    java.chmod(0o755)


@pytest.mark.parametrize(
    ("version", "is_enough"),
    [("1.8.0_392", False), ("11.0.2", False), ("17.0.15", True), ("21", True), ("25-ea", True)],
)
def test_java_has_to_be_17_or_newer(
    version: str, is_enough: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert install.has_java() is is_enough


def test_a_java_home_without_java_is_no_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert not install.has_java()


def test_java_is_required_by_spark_alone() -> None:
    def required(goal: str) -> set[str]:
        return {tool.name for tool in install.tools_for(goal, fresh=False) if tool.required}

    assert required("demo") == {"Java 17 or newer"}
    assert required("quick") == set()
    assert required("test") == set()


def test_a_compiler_is_needed_while_there_is_something_to_compile() -> None:
    names = [tool.name for tool in install.tools_for("quick", fresh=True)]
    assert names == ["a C compiler", "Python's header files", "Python's venv module"]


def test_who_may_not_install_gets_the_line_to_type(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(install, "may_install", lambda: False)
    monkeypatch.setattr("shutil.which", lambda name: name)
    absent = install.Tool("a loom", lambda: False, ("loom", "yarn"))
    assert install.provide([absent]) is False
    assert "sudo apt-get install -y --no-install-recommends loom yarn" in capsys.readouterr().out


def test_what_is_not_required_is_named_and_does_not_stop(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(install, "may_install", lambda: False)
    optional = install.Tool("a loom", lambda: False, ("loom",), required=False)
    assert install.provide([optional]) is True
    assert "a loom" in capsys.readouterr().out


def test_a_changed_source_is_installed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "ROOT", tmp_path)
    source = tmp_path / "kernel.pyx"
    source.write_text("a = 1")
    install.write_stamp(tmp_path, install.fingerprint([source]))
    assert install.stamp_of(tmp_path) == install.fingerprint([source])
    source.write_text("a = 2")
    assert install.stamp_of(tmp_path) != install.fingerprint([source])


def test_an_unfinished_step_has_no_stamp(tmp_path: Path) -> None:
    assert install.stamp_of(tmp_path) == ""
