"""`--command-config`: what it reads, and that its errors show nothing of the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from kohort.cli.command_config import read_command_config
from kohort.errors import ConfigError
from tests.cli.running import told as told_by


def test_a_file_of_kafkas_own_tools(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "# a comment\n\nsecurity.protocol = SASL_SSL\n! another\n"
        'sasl.jaas.config=Module required \\\n   username="a=b" \\\n   password="#c";\n'
    )
    assert read_command_config(file) == {
        "security.protocol": "SASL_SSL",
        "sasl.jaas.config": 'Module required username="a=b" password="#c";',
    }
    assert read_command_config(None) == {}


def test_an_error_shows_nothing_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("a=1\ns3cret\n")
    with pytest.raises(ConfigError, match="line 2: not name=value") as caught:
        read_command_config(file)
    assert "s3cret" not in str(caught.value)
    with pytest.raises(ConfigError, match="No such file"):
        read_command_config(tmp_path / "none")


def test_settings_of_a_schema_registry_are_passed_over_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.id=me\nschema.registry.url=x\nbasic.auth.user.info=me:top-secret\n")
    assert read_command_config(file) == {"client.id": "me"}
    told = capsys.readouterr().err
    assert "line 2: schema.registry.url is a setting of another program" in told
    assert "line 3: basic.auth.user.info" in told
    assert "top-secret" not in told


@pytest.mark.parametrize("command", [("topics", "list"), ("groups", "list"), ("consume", "t")])
def test_a_misspelt_setting_is_a_wrong_usage_of_any_command(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocl=SSL\n")
    config = ("-b", "127.0.0.1:1", "--command-config", str(file))
    line = told_by(*command, *config, code=2)
    assert "unknown setting security.protocl; did you mean security.protocol?" in " ".join(
        line.replace("│", " ").split()
    )
