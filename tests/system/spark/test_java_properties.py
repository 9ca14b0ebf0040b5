"""`--command-config` reads a properties file as Java does: compared with `java.util.Properties`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.java_gateway import JavaGateway

from kohort.broker.net.security import properties
from kohort.cli.command_config import read_command_config

JARS = Path(pyspark.__file__).parent / "jars"

ODD = [
    "name=value",
    "name = value",
    "name:value",
    "name value",
    "name\tvalue",
    "name==value",
    "name= = value",
    "a\\=b=c",
    "a\\:b\\ c:d",
    "path=C:\\\\temp\\\\x",
    "text=a\\tb\\nc\\u0041\\d",
    'jaas=user="a\\\\"b" pass="#!;"',
    "  indented=yes",
    "#comment=1",
    "!comment=2",
    "name=#no comment",
    "joined=a\\\n   b\\\n\tc",
    "not.joined=a\\\\\nnext=1",
    "joined.thrice=a\\\\\\\nb",
    "empty=",
    "a.password=kept ",
    "trimmed=a ",
    "unicode=\u00a0a\u2028b\x85c",
]


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    (jar,) = JARS.glob("py4j-*.jar")
    gateway = JavaGateway.launch_gateway(jarpath=str(jar), die_on_exit=True)
    yield gateway.jvm
    gateway.shutdown()


def as_java(java: Any, path: Path) -> dict[str, str]:
    """What Java reads; Kafka trims settings that are no passwords, and so it is done here."""
    read = java.java.util.Properties()
    reader = java.java.io.FileReader(str(path), java.java.nio.charset.StandardCharsets.UTF_8)
    read.load(reader)
    reader.close()
    # as an array: the end of Py4J's iterator is an error that PySpark, once imported, cannot read
    names = read.stringPropertyNames().toArray()
    found = {str(name): str(read.getProperty(name)) for name in names}
    return {name: value if "password" in name else value.rstrip() for name, value in found.items()}


@pytest.mark.parametrize("line", ODD)
def test_a_line_means_what_it_means_to_java(line: str, java: Any, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"{line}\nlast=1\n", encoding="utf-8")
    assert read_command_config(file) == as_java(java, file)


@given(value=st.text(st.characters(codec="utf-8")))
def test_what_a_secured_broker_writes_is_read_alike(
    value: str, java: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("settings") / "client.properties"
    file.write_text(properties({"a.password": value}), encoding="utf-8")
    assert read_command_config(file) == as_java(java, file) == {"a.password": value}
