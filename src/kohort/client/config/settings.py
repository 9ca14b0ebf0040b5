"""Types of keyword settings, written by `python tools/setting_types.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ssl import SSLContext
from typing import Literal, TypedDict

from kohort.client.config.definitions import AssignorsGiven, OnCommit, Partitioner
from kohort.client.config.security import TokenProvider
from kohort.group.events import GroupEvent


class SecuritySettings(TypedDict, total=False):
    """Settings of TLS and SASL, of every client."""

    security_protocol: str
    """"PLAINTEXT", "SSL" (meaning TLS), "SASL_PLAINTEXT" or "SASL_SSL". Default: "PLAINTEXT"."""

    ssl_context: SSLContext | None
    """Your own SSL context; other TLS settings may not be given with it. Default: None."""

    ssl_ca_location: str | None
    """File or folder with PEM certificates to trust, instead of the system's. Default: None."""

    ssl_truststore_location: str | None
    """File with certificates to trust: PEM or PKCS12. Default: None."""

    ssl_truststore_type: str | None
    """"PEM" or "PKCS12"; if not set, detected from the file. Default: None."""

    ssl_truststore_password: str | None
    """Password of a PKCS12 trust store. Default: None."""

    ssl_truststore_certificates: str | None
    """Certificates to trust, as PEM text. Default: None."""

    ssl_certificate_location: str | None
    """PEM file with the client's certificate and its chain. Default: None."""

    ssl_key_location: str | None
    """PEM file with the client's private key. Default: None."""

    ssl_keystore_location: str | None
    """File with the client's key and certificate: PEM or PKCS12. Default: None."""

    ssl_keystore_type: str | None
    """"PEM" or "PKCS12"; if not set, detected from the file. Default: None."""

    ssl_keystore_password: str | None
    """Password of a PKCS12 key store. Default: None."""

    ssl_keystore_certificate_chain: str | None
    """The client's certificate and its chain, as PEM text. Default: None."""

    ssl_keystore_key: str | None
    """The client's private key, as PEM text. Default: None."""

    ssl_key_password: str | None
    """Password of the private key. Default: None."""

    ssl_endpoint_identification_algorithm: str
    """"https" checks the broker's host name against its certificate; "" does not, so that anyone
    with a trusted certificate can impersonate a broker. Default: "https".
    """

    ssl_enabled_protocols: str | None
    """TLS versions, "TLSv1.2" and "TLSv1.3"; both if not set. Default: None."""

    sasl_mechanism: str | None
    """"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM" or "GSSAPI"
    (Kerberos). Default: None.
    """

    sasl_username: str | None
    """User name (PLAIN, SCRAM). Default: None."""

    sasl_password: str | None
    """Password (PLAIN, SCRAM). Default: None."""

    sasl_jaas_config: str | None
    """User and password, or options of another mechanism, in Java's JAAS format. Default: None."""

    sasl_allow_unencrypted: bool
    """Whether PLAIN, OAUTHBEARER and AWS_MSK_IAM may be used without TLS, where anyone on the
    network can read the password or token. Default: False.
    """

    sasl_oauth_token_provider: TokenProvider | None
    """Returns a token for OAUTHBEARER, or an awaitable; a callable, or an object with a method
    `token`. Called for each connection, in a thread. Default: None.
    """

    sasl_oauthbearer_token_endpoint_url: str | None
    """Token endpoint for client credentials (KIP-768). Default: None."""

    sasl_oauthbearer_client_id: str | None
    """Client id for the token endpoint. Default: None."""

    sasl_oauthbearer_client_secret: str | None
    """Client secret for the token endpoint. Default: None."""

    sasl_oauthbearer_scope: str | None
    """Scope to request. Default: None."""

    sasl_oauthbearer_extensions: str | None
    """Extensions for the broker (KIP-342), "name=value,name=value". Default: None."""

    sasl_aws_region: str | None
    """Region of an MSK cluster (AWS_MSK_IAM); if not set, derived from the hosts of
    `bootstrap_servers`. Default: None.
    """

    sasl_kerberos_service_name: str | None
    """Service name of the brokers, the first part of their principals (GSSAPI); "kafka" if not set.
    Default: None.
    """

    https_ca_location: str | None
    """PEM file or folder of certificates to trust for the token endpoint; the system's if not set.
    Default: None.
    """

    proxy_url: str | None
    """Proxy to connect through, "socks5://user:password@host:port" or "http://..."; it looks up the
    brokers' names. Default: None.
    """


class ClientSettings(SecuritySettings, total=False):
    """Settings of every client."""

    bootstrap_servers: str | Sequence[str]
    """`host:port` of some brokers, separated by commas or in a sequence. Default: "localhost:9092".
    """

    client_id: str
    """Name of the client in the broker's logs. Default: "kohort"."""

    request_timeout_ms: int
    """Maximum time for one request. Default: 30_000."""

    default_api_timeout_ms: int
    """Maximum time for one call, including all retries of requests; if not set, at least
    `request_timeout_ms`. Default: 60_000.
    """

    retry_backoff_ms: int
    """First pause before a request is retried. Default: 100."""

    retry_backoff_max_ms: int
    """Longest such pause; if not set, at least the first. Default: 1_000."""

    reconnect_backoff_ms: int
    """First pause before reconnecting to a broker. Default: 50."""

    reconnect_backoff_max_ms: int
    """Longest such pause; if not set, at least the first. Default: 1_000."""

    socket_connection_setup_timeout_ms: int
    """Maximum time for connecting; at most `request_timeout_ms`. Default: 10_000."""

    metadata_max_age_ms: int
    """Metadata is refreshed after this time. Default: 300_000."""

    max_in_flight_requests_per_connection: int
    """Maximum unanswered requests per connection. Default: 5."""

    connections_max_idle_ms: int
    """A connection that was idle for this long is closed instead of reused: a load balancer in
    between may have dropped it. Default: 540_000.
    """

    metadata_recovery_rebootstrap_trigger_ms: int
    """If no known broker answers metadata requests for this long, the bootstrap servers are asked
    (KIP-1102). Default: 300_000.
    """


class ConsumerSettings(ClientSettings, total=False):
    """Settings of `Consumer` and `AsyncConsumer`."""

    group_id: str | None
    """The group to join and to commit offsets to. Default: None."""

    group_instance_id: str | None
    """Id of a static member (KIP-345). Default: None."""

    group_protocol: Literal["classic", "consumer", "draft"]
    """"classic", or "consumer" for the protocol of KIP-848, in which the broker assigns; "draft" is
    for study (docs/internals/draft.md) and needs a Kohort broker that serves it. Default:
    "classic".
    """

    group_remote_assignor: str | None
    """With "consumer": the broker's assignor to request, "uniform" or "range"; None leaves the
    choice to the broker. Default: None.
    """

    group_local_assignors: AssignorsGiven
    """With "consumer": assignors that this client can run itself, in order of preference, as
    objects or by name. A broker that asks members for assignments, such as the embedded one, uses
    them once all members have one in common. Default: ().
    """

    session_timeout_ms: int
    """A member without a heartbeat for this long is considered dead. Default: 45_000."""

    heartbeat_interval_ms: int
    """Approximate time between heartbeats, which are spread over a session. Default: 3_000."""

    max_poll_interval_ms: int
    """Maximum time between polls; a slower member leaves its group. Default: 300_000."""

    max_poll_records: int
    """Maximum number of records from one `poll`. Default: 500."""

    partition_assignment_strategy: AssignorsGiven
    """Assignors in order of preference, or a single one: as objects, as classes, by name, or by
    import path, "package.module:Class". Default: ("range", "cooperative-sticky").
    """

    enable_auto_commit: bool
    """Whether positions are committed automatically. Default: True."""

    auto_commit_interval_ms: int
    """Time between automatic commits. Default: 5_000."""

    enable_auto_offset_store: bool
    """Whether asking for more records marks the earlier ones as processed; if not, only
    `store_offsets` does. This applies to auto-commit, and to `commit` without offsets. Default:
    True.
    """

    auto_offset_reset: Literal["earliest", "latest", "none"]
    """Where to start without a committed offset: "earliest", "latest", "none". Default: "latest".
    """

    isolation_level: Literal["read_uncommitted", "read_committed"]
    """"read_committed" leaves out aborted transactions and waits for open ones. Default:
    "read_uncommitted".
    """

    fetch_min_bytes: int
    """The broker answers a fetch once it has this many bytes. Default: 1."""

    fetch_max_wait_ms: int
    """The broker answers a fetch after this time at the latest. Default: 500."""

    fetch_max_bytes: int
    """Maximum bytes of one answer, and roughly of a consumer's buffer. Default: 52_428_800."""

    max_partition_fetch_bytes: int
    """Maximum bytes of one partition in one answer. Default: 1_048_576."""

    check_crcs: bool
    """Whether to check the CRC of fetched batches. Default: True."""

    client_rack: str | None
    """The client's rack, for rack-aware assignors (KIP-881). Default: None."""

    allow_auto_create_topics: bool
    """Whether requesting metadata of a topic may create it. Default: True."""

    exclude_internal_topics: bool
    """Whether a pattern leaves out Kafka's internal topics. Default: True."""

    key_deserializer: Callable[[bytes], object] | None
    """Converts the bytes of a key; not called for null. Default: None."""

    value_deserializer: Callable[[bytes], object] | None
    """Converts the bytes of a value; not called for null. Default: None."""

    consumer_timeout_ms: int | None
    """How long iteration waits for a record before it ends; None for no limit. Default: None."""

    on_commit: OnCommit | None
    """Called with the offsets of each auto-commit, and of each `commit_async` without a callback of
    its own, and None or the error; during a later poll or `close`. Default: None.
    """

    event_listener: Callable[[GroupEvent], None] | None
    """Called with events of the group member (`kohort.group.events`), in another thread. Default:
    None.
    """


class ProducerSettings(ClientSettings, total=False):
    """Settings of `Producer` and `AsyncProducer`."""

    acks: str | int
    """Which replicas must have a record before it counts as sent: "all", 1 (only the leader) or 0
    (none). Default: "all".
    """

    enable_idempotence: bool
    """Whether the broker drops duplicates from retries (KIP-98). Default: True."""

    compression_type: str | None
    """"none" (or None), "gzip", "snappy", "lz4" or "zstd". Default: "none"."""

    linger_ms: int
    """How long a batch waits for more records. Default: 5."""

    batch_size: int
    """Bytes of a full batch, before compression. While records wait, because the brokers or this
    process do not keep up, a batch may grow to 16 times that, unless `acks` is 0; a batch that is
    too large for its topic is split (KIP-126). Default: 16_384.
    """

    buffer_memory: int
    """Maximum bytes of records waiting to be sent; beyond it, `send` waits. Default: 33_554_432."""

    max_request_size: int
    """Maximum bytes of one record, and of one request. Default: 1_048_576."""

    max_block_ms: int
    """Maximum time that `send` waits for memory or metadata. Default: 60_000."""

    delivery_timeout_ms: int
    """A record that is not acknowledged within this time fails, regardless of `request_timeout_ms`.
    It must be above `linger_ms`; if not set, it is at least the sum of `linger_ms` and
    `request_timeout_ms`. Default: 120_000.
    """

    partitioner: Literal["murmur2", "murmur2_random", "consistent_random"] | Partitioner
    """Chooses the partition of a record that is sent without one. "murmur2" (also "murmur2_random")
    maps keys like Java's producer and kafka-python, "consistent_random" like librdkafka by default
    (CRC32; an empty key counts as none). A callable gets topic, key (bytes or None) and the number
    of partitions; it returns a partition, or None to leave the choice to the producer. Records
    without a key stay together for a batch, then go to another partition. Default: "murmur2".
    """

    allow_auto_create_topics: bool
    """Whether sending to a topic may create it, if the broker has auto.create.topics.enable. Java's
    producer always allows it. Default: True.
    """

    key_serializer: Callable[..., bytes] | None
    """Converts a key to bytes; not called for None. Default: None."""

    value_serializer: Callable[..., bytes] | None
    """Converts a value to bytes; not called for None. Default: None."""

    transactional_id: str | None
    """Makes the producer transactional (KIP-98). Use the same id in each run of one instance of an
    application: a new producer with it ends the transaction of the previous one, and fences that
    producer. It needs Apache Kafka. Default: None.
    """

    transaction_timeout_ms: int
    """The broker aborts a transaction that is open for longer than this; its own
    `transaction.max.timeout.ms` limits the value. Default: 60_000.
    """


class AdminSettings(ClientSettings, total=False):
    """Settings of `AdminClient` and `AsyncAdminClient`."""

    group_id: str | None
    """The group of calls that name no group. Default: None."""
