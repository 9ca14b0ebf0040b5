"""docs/spark-cluster.md shows what is in examples/spark_on_cluster, and names what there is."""

from __future__ import annotations

import re
import runpy
import subprocess
import textwrap
import zipfile
from pathlib import Path
from typing import Any

import pyspark
import pytest
import yaml  # type: ignore[import-untyped]  # PyYAML has no types, and no stubs are installed

from kohort.spark.options.source import parse_options

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "spark-cluster.md").read_text()
EXAMPLES = ROOT / "examples" / "spark_on_cluster"
BLOCKS = re.findall(r"^```(python|yaml|dockerfile)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
# Settings whose last part is yours to choose.
PREFIXES = ("spark.yarn.appMasterEnv.", "spark.executorEnv.")


def documents(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = list(yaml.safe_load_all((EXAMPLES / name).read_text()))
    return found


def pod() -> dict[str, Any]:
    _, drivers = documents("driver.yaml")
    spec: dict[str, Any] = drivers["spec"]["template"]["spec"]
    return spec


def arguments(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the application makes of the arguments in its pod."""
    given = pod()["containers"][0]["args"]
    program = given.index("/app/application.py")
    monkeypatch.setattr("sys.argv", given[program:])
    return runpy.run_path(str(EXAMPLES / "application.py"))["parsed"]()


def test_what_the_page_shows_is_in_the_examples() -> None:
    files = [file.read_text() for file in EXAMPLES.iterdir() if file.is_file()]
    assert {kind for kind, _ in BLOCKS} == {"python", "yaml", "dockerfile"}
    for _, shown in BLOCKS:
        assert any(shown in text or textwrap.indent(shown, " " * 10) in text for text in files)


def test_spark_md_links_to_a_heading() -> None:
    anchors = re.findall(r"spark-cluster\.md#([\w-]+)", (ROOT / "docs" / "spark.md").read_text())
    headings = [line.strip("# ").lower() for line in PAGE.splitlines() if line.startswith("#")]
    assert set(anchors) <= {heading.replace(" ", "-") for heading in headings}


def test_every_setting_is_one_of_sparks() -> None:
    text = PAGE + (EXAMPLES / "driver.yaml").read_text()
    names = set(re.findall(r"(?<=[`=, ])spark(?:\.[a-zA-Z]+){2,}(?=[`=])", text))
    known = settings_of_spark()
    unknown = {name for name in names if not name.startswith(PREFIXES)} - known
    assert names
    assert unknown == set()


def settings_of_spark() -> set[str]:
    """The names in the classes that define Spark's settings."""
    found: set[bytes] = set()
    for part in ("core", "yarn", "kubernetes", "launcher", "sql-api", "catalyst"):
        for jar in Path(pyspark.__file__).parent.glob(f"jars/spark-{part}_*.jar"):
            with zipfile.ZipFile(jar) as classes:
                for name in classes.namelist():
                    if "config" in name.lower() or "Launcher" in name:
                        found |= set(re.findall(rb"spark\.[a-zA-Z.]+", classes.read(name)))
    return {name.decode() for name in found}


def test_every_option_of_the_source_is_accepted() -> None:
    names = set(re.findall(r"`(kafka(?:\.[a-z]+)+)`", PAGE))
    assert "kafka.group.instance.id" in names
    required = {"kafka.bootstrap.servers": "h:1", "kafka.group.id": "a", "subscribe": "a"}
    for name in names:
        value = "10000" if name.endswith(".ms") else "consumer"
        parse_options({**required, name: value})


def test_the_pod_gives_the_application_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    given = arguments(monkeypatch)
    assert pod()["terminationGracePeriodSeconds"] > given.drain_timeout
    *shell, command = pod()["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert shell == ["sh", "-c"]
    assert command.split()[:2] == ["touch", given.stop_file.removeprefix("file://")]
    subprocess.run(["sh", "-n", "-c", command], check=True)


def test_names_in_the_pod_fit_together() -> None:
    service, drivers = documents("driver.yaml")
    assert service["metadata"]["name"] == drivers["spec"]["serviceName"]
    labels = drivers["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == labels == drivers["spec"]["selector"]["matchLabels"]
    container = pod()["containers"][0]
    assert f"--conf=spark.kubernetes.container.image={container['image']}" in container["args"]


def test_what_scales_looks_at_the_group_of_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    given = arguments(monkeypatch)
    (scaled,) = documents("scaling.yaml")
    target = scaled["spec"]["scaleTargetRef"]
    drivers = documents("driver.yaml")[1]
    assert (target["kind"], target["name"]) == (drivers["kind"], drivers["metadata"]["name"])
    (trigger,) = scaled["spec"]["triggers"]
    assert trigger["type"] == "kafka"
    assert all(isinstance(value, str) for value in trigger["metadata"].values())
    assert trigger["metadata"]["consumerGroup"] == given.group
    assert trigger["metadata"]["topic"] == given.topic
    assert trigger["metadata"]["bootstrapServers"] == given.bootstrap_servers
