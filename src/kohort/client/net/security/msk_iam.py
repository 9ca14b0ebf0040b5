"""IAM of Amazon MSK: tokens for OAUTHBEARER, signed with AWS credentials."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kohort.client.config.iam_options import IAM, region_of
from kohort.client.net.security.auth import CredentialsError
from kohort.errors import BrokerUnavailableError, ErrorCode, KohortError
from kohort.extras import needed_by

if TYPE_CHECKING:
    from kohort.client.config.security import SecurityConfig

# A token is valid for 15 minutes, but no longer than the credentials that signed it. Machines
# and containers get new credentials 5 minutes before the old ones expire.
_KEPT_S = 240.0


class IamTokens:
    """Signs tokens with AWS credentials, and keeps each for 4 minutes.

    Args:
        config: Settings, checked.
        hosts: Hosts of the bootstrap servers.

    Raises:
        MissingExtraError: The package that signs is not installed.
    """

    def __init__(self, config: SecurityConfig, hosts: Iterable[str]) -> None:
        with needed_by(f"sasl.mechanism={IAM}"):
            from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
        entry = config.jaas()
        options = {} if entry is None else entry.options
        region = region_of(config.sasl_aws_region, hosts)
        self._sign: Callable[[], tuple[str, int]] = _signing(MSKAuthTokenProvider, region, options)
        self._lock = threading.Lock()
        self._token = ""
        self._kept_until = 0.0

    def token(self) -> str:
        """Return a currently valid token.

        Raises:
            AuthenticationError: There are no credentials, or AWS refuses them.
            BrokerUnavailableError: The source of credentials cannot be reached (retriable).
        """
        with self._lock:
            asked_at = time.monotonic()
            if asked_at >= self._kept_until:
                try:
                    self._token, _ = self._sign()
                except Exception as error:  # from AWS packages, which document no types
                    raise _explained(error) from error
                self._kept_until = asked_at + _KEPT_S
            return self._token


def _signing(
    signer: Any,  # noqa: ANN401  # a module without type hints
    region: str,
    options: Mapping[str, str],
) -> Callable[[], tuple[str, int]]:
    """Return a function that signs a token with the credentials in the options."""
    profile, role = options.get("awsProfileName"), options.get("awsRoleArn")
    if profile is not None:
        return lambda: signer.generate_auth_token_from_profile(region, profile)
    if role is not None:
        name = options.get("awsRoleSessionName", "kohort")
        return lambda: signer.generate_auth_token_from_role_arn(region, role, name)
    return lambda: signer.generate_auth_token(region)


def _explained(error: Exception) -> KohortError:
    """Return the error for a failed signature; its type shows whether retrying can help."""
    from botocore import exceptions

    passing = (
        exceptions.HTTPClientError,  # connections and their timeouts
        exceptions.CredentialRetrievalError,
        exceptions.MetadataRetrievalError,
        OSError,
    )
    if isinstance(error, passing):
        return BrokerUnavailableError(f"{IAM}: AWS provides no credentials now: {error}")
    if isinstance(error, exceptions.ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
        if status >= 500 or status == 429:
            return BrokerUnavailableError(f"{IAM}: AWS provides no credentials now: {error}")
    # The signer uses credentials without checking whether there are any.
    is_without = isinstance(error, AttributeError | exceptions.NoCredentialsError)
    why = (
        "no AWS credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name"
        " a profile as awsProfileName in sasl.jaas.config, or give the machine a role"
        if is_without
        else f"no token could be signed: {error}"
    )
    return CredentialsError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"{IAM}: {why}")
