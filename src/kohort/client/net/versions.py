"""Which version of a request this client sends to a broker."""

from __future__ import annotations

from collections.abc import Mapping

from kohort.errors import ErrorCode, KafkaError
from kohort.wire.codec.schema import Message
from kohort.wire.messages.api_versions import ApiVersionsResponse

# Where the structure of a message changed, this client uses one. Kafka 3.0 and later serve all.
# By API key: the modules that send the messages import them.
_OURS: Mapping[int, tuple[int, int]] = {
    0: (3, 13),  # Produce: record batches of format 2
    9: (8, 9),  # OffsetFetch: several groups, topics by name
    10: (4, 6),  # FindCoordinator: several keys
    20: (6, 6),  # DeleteTopics: topics as structures
    24: (0, 3),  # AddPartitionsToTxn: later ones are for brokers (KIP-890)
}

# Fetch uses topic ids from version 13 on; without ids, earlier versions are used.
FETCH_BY_NAME = 12
# OffsetCommit uses them from version 10 on.
COMMIT_BY_NAME = 9
# Produce uses them from version 13 on.
PRODUCE_BY_NAME = 12
# With later versions a producer announces version 2 of transactions (KIP-890).
PRODUCE_IN_V1 = 11
OFFSETS_IN_V1 = END_IN_V1 = 4


class BrokerVersions:
    """The versions that one broker serves.

    Args:
        answer: Its answer to ApiVersions.
    """

    def __init__(self, answer: ApiVersionsResponse) -> None:
        self._served = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        self._levels = {each.name: each.max_version_level for each in answer.finalized_features}

    def too_old(self) -> str:
        """Return why this client cannot work with the broker at all, empty when it can.

        A broker that lacks an API is not necessarily old: it may serve only a part of Kafka's APIs.
        """
        for key, (low, _) in _OURS.items():
            last = self._served.get(key, (0, low))[1]
            if last < low:
                return (
                    "the broker is older than Apache Kafka 3.0, which kohort needs: it has API "
                    f"{key} up to version {last}, and this client begins with {low}"
                )
        return ""

    def serves(self, request: type[Message]) -> bool:
        """Whether the broker serves a request in any version."""
        return request.api_key in self._served

    def level(self, feature: str) -> int:
        """Return the level of a feature that the cluster has agreed on (KIP-584), 0 for none."""
        return self._levels.get(feature, 0)

    def choose(self, request: type[Message], at_most: int | None = None) -> int:
        """Return the newest version that both sides support.

        Raises:
            KafkaError: `UNSUPPORTED_VERSION`: there is none.
        """
        low, high = _OURS.get(request.api_key, (request.min_version, request.max_version))
        if at_most is not None:
            high = min(high, at_most)
        served = self._served.get(request.api_key)
        if served is None:
            raise _unsupported(request, "the broker does not serve it")
        version = min(high, served[1])
        if version < max(low, served[0]):
            raise _unsupported(
                request,
                f"the broker has versions {served[0]} to {served[1]}, this client {low} to {high}",
            )
        return version


def _unsupported(request: type[Message], why: str) -> KafkaError:
    return KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{request.__name__}: {why}")
