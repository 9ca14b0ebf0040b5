"""Settings of IAM of Amazon MSK: options of Java's IAMLoginModule, and the region."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from kohort.errors import ConfigError

IAM: Final = "AWS_MSK_IAM"
# Options of Java's IAMLoginModule that the signer supports, too.
_OPTIONS = ("awsProfileName", "awsRoleArn", "awsRoleSessionName")
# b-1.name.abc.c2.kafka.REGION.amazonaws.com, boot-abc.c1.kafka-serverless.REGION.amazonaws.com
_HOST = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?\.?")
_REGION = re.compile(r"[a-z0-9-]+")


def region_of(given: str | None, hosts: Iterable[str]) -> str:
    """Return the region of a cluster.

    Args:
        given: The setting `sasl.aws.region`.
        hosts: Hosts of the bootstrap servers.

    Raises:
        ConfigError: The setting is not a region, or neither it nor the hosts name one.
    """
    if given is not None:
        if _REGION.fullmatch(given) is None:
            raise ConfigError("sasl.aws.region must be the name of a region, like us-east-1")
        return given
    found = {match[1] for host in hosts if (match := _HOST.search(host.lower()))}
    if len(found) != 1:
        told = "name several regions" if found else "do not name a region"
        raise ConfigError(
            f"sasl.mechanism={IAM}: the hosts of bootstrap.servers {told}: set sasl.aws.region"
        )
    return found.pop()


def check_iam(options: Mapping[str, str], given: str | None, hosts: Iterable[str]) -> None:
    """Check the IAM settings.

    Args:
        options: Options of `IAMLoginModule` in `sasl.jaas.config`.
        given: The setting `sasl.aws.region`.
        hosts: Hosts of the bootstrap servers.

    Raises:
        ConfigError: They contradict each other, or would have no effect.
    """
    for name in options:
        if name not in _OPTIONS:
            known = ", ".join(_OPTIONS)
            raise ConfigError(
                f"sasl.jaas.config: IAMLoginModule accepts {known} here, but not {name:.40}"
            )
    if "awsProfileName" in options and "awsRoleArn" in options:
        raise ConfigError(
            "sasl.jaas.config: awsProfileName and awsRoleArn exclude each other: name the role in"
            " the profile, as role_arn"
        )
    if "awsRoleSessionName" in options and "awsRoleArn" not in options:
        raise ConfigError("sasl.jaas.config: awsRoleSessionName has no effect without awsRoleArn")
    region_of(given, hosts)
