"""What is said when a package of an extra is not installed."""

from __future__ import annotations

import sys

import pytest

from kohort.cli.main import app
from kohort.extras import MissingExtraError, check_packages


def test_all_missing_packages_are_named_at_once() -> None:
    with pytest.raises(MissingExtraError, match=r"demo needs one_x, two_x.*'kohort\[demo\]'"):
        check_packages("the demo", "demo", ["sys", "one_x", "two_x"])
    check_packages("the demo", "demo", ["sys"])


def test_the_demo_looks_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    monkeypatch.setattr("kohort.demo.settings.PACKAGES", ("nowhere_to_be_found",))
    done = CliRunner().invoke(app, ["demo", "--quick"])
    assert isinstance(done.exception, MissingExtraError)
    assert "nowhere_to_be_found" in str(done.exception)


def test_spark_without_pyspark_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    import kohort.spark

    for name in {"pyspark", *(name for name in sys.modules if name.startswith("pyspark."))}:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "kohort.spark.completion.listener", raising=False)
    monkeypatch.delitem(vars(kohort.spark), "install", raising=False)
    with pytest.raises(MissingExtraError, match=r"pip install 'kohort\[spark\]'"):
        _ = kohort.spark.install
