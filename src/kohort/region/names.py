"""Limits on the names of a region, an operator and its group.

They become part of topic names, records and file names.
"""

from __future__ import annotations

import re

# The client id is the name and twelve more characters; records allow 249. A record's key contains
# it quoted, three characters per byte, and may have 2,000.
OPERATOR_MAX = 200
OPERATOR_BYTES_MAX = 600
GROUP_MAX = 249
_IN_FILES_MAX = 120
# Kafka allows 249 characters in a topic name, which adds "__kohort-region-" and "-state".
REGION_MAX = 227
_ODD = re.compile(r"[^A-Za-z0-9._-]")


def problem_of_region(region: object) -> str:
    """Return why this cannot be the name of a region; empty if it can.

    Args:
        region: The value given as its name.
    """
    if not isinstance(region, str):
        return f"the region's name is a {type(region).__name__} and must be a text"
    if not region or _ODD.search(region) or len(region) > REGION_MAX:
        return (
            f"{region!r} cannot be the name of a region, as its topics are named after it: 1 to "
            f"{REGION_MAX} ASCII letters, digits, '.', '_' and '-' are allowed"
        )
    return ""


def problem_of(operator: str, group_id: str) -> str:
    """Return why these cannot be names of an operator and its group; empty if they can.

    Args:
        operator: Name of the operator.
        group_id: Name of the group.
    """
    size = len(operator.encode())
    if len(operator) > OPERATOR_MAX or size > OPERATOR_BYTES_MAX:
        return (
            f"the operator's name has {len(operator)} characters and {size} bytes, and a region "
            f"allows at most {OPERATOR_MAX} characters and {OPERATOR_BYTES_MAX} bytes"
        )
    if len(group_id) > GROUP_MAX:
        return (
            f"the group id has {len(group_id)} characters, and a region allows at most {GROUP_MAX}"
        )
    return ""


def in_file_names(prefix: str) -> str:
    """Return a readable prefix for file names; the rest of the name must be unique.

    Args:
        prefix: Checkpoint, attempt, and the name of an operator.
    """
    return _ODD.sub("_", prefix)[:_IN_FILES_MAX]
