"""Settings with a typo, of another client, or of the wrong type: refused on creation.

Prints:
    group_di: did you mean group_id? True
    enable.autocommit: did you mean enable.auto.commit? True
    max_poll_records='many': ConfigError
    bootstrap_servers='nowhere': ConfigError
    auto_offset_reset='smallest': names the choices: True
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kohort import ConfigError, Consumer
from tests.usage.around import start


def refused(settings: Mapping[str, Any]) -> str:
    try:
        Consumer(**settings).close()
    except ConfigError as error:
        return str(error)
    return "taken"


def main(bootstrap: str) -> None:
    print("group_di: did you mean group_id?", "group_id" in refused({"group_di": "x"}))
    try:
        Consumer.from_config({"enable.autocommit": "true"})
    except ConfigError as error:
        print("enable.autocommit: did you mean enable.auto.commit?", "enable.auto.c" in str(error))
    many = refused({"max_poll_records": "many"})
    print("max_poll_records='many':", "taken" if many == "taken" else "ConfigError")
    nowhere = refused({"bootstrap_servers": "nowhere"})
    print("bootstrap_servers='nowhere':", "taken" if nowhere == "taken" else "ConfigError")
    reset = refused({"auto_offset_reset": "smallest"})
    print("auto_offset_reset='smallest': names the choices:", "earliest" in reset)


if __name__ == "__main__":
    start(main)
