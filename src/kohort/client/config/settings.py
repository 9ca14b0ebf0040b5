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
    """"PLAINTEXT", "SSL" (which is TLS), "SASL_PLAINTEXT" or "SASL_SSL". Default: "PLAINTEXT"."""

    ssl_context: SSLContext | None
    """A context of your own; then no other setting of TLS may be given. Default: None."""

    ssl_ca_location: str | None
    """File or folder of PEM certificates to trust, instead of the system's. Default: None."""

    ssl_truststore_location: str | None
    """File of certificates to trust: PEM, or PKCS12. Default: None."""

    ssl_truststore_type: str | None
    """"PEM" or "PKCS12"; if not set, the file tells. Default: None."""

    ssl_truststore_password: str | None
    """Password of a trust store in PKCS12. Default: None."""

    ssl_truststore_certificates: str | None
    """Certificates to trust, as PEM. Default: None."""

    ssl_certificate_location: str | None
    """PEM file of the client's certificate and its chain. Default: None."""

    ssl_key_location: str | None
    """PEM file of the client's private key. Default: None."""

    ssl_keystore_location: str | None
    """File of the client's key and certificate: PEM, or PKCS12. Default: None."""

    ssl_keystore_type: str | None
    """"PEM" or "PKCS12"; if not set, the file tells. Default: None."""

    ssl_keystore_password: str | None
    """Password of a key store in PKCS12. Default: None."""

    ssl_keystore_certificate_chain: str | None
    """The client's certificate and its chain, as PEM. Default: None."""

    ssl_keystore_key: str | None
    """The client's private key, as PEM. Default: None."""

    ssl_key_password: str | None
    """Password of the private key. Default: None."""

    ssl_endpoint_identification_algorithm: str
    """"https" compares the broker's host name with its certificate; "" does not, so that anyone
    with a trusted certificate can pose as a broker. Default: "https".
    """

    ssl_enabled_protocols: str | None
    """Versions of TLS, of "TLSv1.2" and "TLSv1.3"; both if not set. Default: None."""

    sasl_mechanism: str | None
    """"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM" or "GSSAPI", which is
    Kerberos. Default: None.
    """

    sasl_username: str | None
    """Name of the user (PLAIN, SCRAM). Default: None."""

    sasl_password: str | None
    """Password of the user (PLAIN, SCRAM). Default: None."""

    sasl_jaas_config: str | None
    """Both, or those of another mechanism, as Java's clients have them. Default: None."""

    sasl_allow_unencrypted: bool
    """Whether PLAIN, OAUTHBEARER and AWS_MSK_IAM may be used without TLS, where anyone on the way
    can read the password or the token. Default: False.
    """

    sasl_oauth_token_provider: TokenProvider | None
    """Returns a token of OAUTHBEARER, or something to await for one; a callable, or an object with
    a method `token`. Called for each connection, in a thread. Default: None.
    """

    sasl_oauthbearer_token_endpoint_url: str | None
    """Where to get tokens with client credentials (KIP-768). Default: None."""

    sasl_oauthbearer_client_id: str | None
    """Client id for that. Default: None."""

    sasl_oauthbearer_client_secret: str | None
    """Client secret for that. Default: None."""

    sasl_oauthbearer_scope: str | None
    """Scope to ask for. Default: None."""

    sasl_oauthbearer_extensions: str | None
    """Extensions for the broker (KIP-342), "name=value,name=value". Default: None."""

    sasl_aws_region: str | None
    """Region of an MSK cluster (AWS_MSK_IAM); if not set, the hosts of `bootstrap_servers` tell.
    Default: None.
    """

    sasl_kerberos_service_name: str | None
    """First part of the brokers' principals (GSSAPI); "kafka" if not set. Default: None."""

    https_ca_location: str | None
    """PEM file or folder to trust at the token endpoint; the system's if not set. Default: None."""

    proxy_url: str | None
    """Proxy to connect through, "socks5://user:password@host:port" or "http://..."; it looks up the
    brokers' names. Default: None.
    """


class ClientSettings(SecuritySettings, total=False):
    """Settings of every client."""

    bootstrap_servers: str | Sequence[str]
    """`host:port` of some brokers, separated by commas or as a sequence. Default: "localhost:9092".
    """

    client_id: str
    """What the client calls itself in the broker's logs. Default: "kohort"."""

    request_timeout_ms: int
    """How long one request may take. Default: 30_000."""

    default_api_timeout_ms: int
    """How long one call may take, with all the requests it tries; if not set, at least
    `request_timeout_ms`. Default: 60_000.
    """

    retry_backoff_ms: int
    """First pause before a request is tried again. Default: 100."""

    retry_backoff_max_ms: int
    """Longest such pause; if not set, at least the first. Default: 1_000."""

    reconnect_backoff_ms: int
    """First pause before a broker is connected to again. Default: 50."""

    reconnect_backoff_max_ms: int
    """Longest such pause; if not set, at least the first. Default: 1_000."""

    socket_connection_setup_timeout_ms: int
    """How long connecting may take; `request_timeout_ms` at most. Default: 10_000."""

    metadata_max_age_ms: int
    """After this time the client asks for metadata again. Default: 300_000."""

    max_in_flight_requests_per_connection: int
    """Unanswered requests on one connection. Default: 5."""

    connections_max_idle_ms: int
    """A connection that was not used for so long is closed, and not used again: a balancer on the
    way may have forgotten it. Default: 540_000.
    """

    metadata_recovery_rebootstrap_trigger_ms: int
    """After this time in which no known broker has told its metadata, the bootstrap servers are
    asked (KIP-1102). Default: 300_000.
    """


class ConsumerSettings(ClientSettings, total=False):
    """Settings of `Consumer` and `AsyncConsumer`."""

    group_id: str | None
    """The group to be a member of, and to commit offsets to. Default: None."""

    group_instance_id: str | None
    """Static membership (KIP-345). Default: None."""

    group_protocol: Literal["classic", "consumer", "draft"]
    """"classic", or "consumer" for that of KIP-848, in which the broker assigns; "draft" is for
    study (docs/draft.md) and needs a Kohort broker that serves it. Default: "classic".
    """

    group_remote_assignor: str | None
    """With "consumer": the broker's assignor to ask for, "uniform" or "range"; None leaves it the
    choice. Default: None.
    """

    group_local_assignors: AssignorsGiven
    """With "consumer": assignors that this client can run itself, in order of preference, as
    objects or by name. They are used by a broker that asks members for assignments, as the embedded
    one does, once all members have one in common. Default: ().
    """

    session_timeout_ms: int
    """After this time without a heartbeat the group thinks a member dead. Default: 45_000."""

    heartbeat_interval_ms: int
    """About the time between heartbeats; they are spread over a session. Default: 3_000."""

    max_poll_interval_ms: int
    """Longest time between polls; beyond it the member leaves its group. Default: 300_000."""

    max_poll_records: int
    """Most records of one `poll`. Default: 500."""

    partition_assignment_strategy: AssignorsGiven
    """Assignors in order of preference, or one alone: as objects, as classes, by name, or by import
    path, "package.module:Class". Default: ("range", "cooperative-sticky").
    """

    enable_auto_commit: bool
    """Whether positions are committed without being asked to. Default: True."""

    auto_commit_interval_ms: int
    """How often. Default: 5_000."""

    enable_auto_offset_store: bool
    """Whether asking for more records says that the application is done with those it had; if not,
    only `store_offsets` says so. Both are about auto-commit, and about `commit` without offsets.
    Default: True.
    """

    auto_offset_reset: Literal["earliest", "latest", "none"]
    """Where to begin without a committed offset: "earliest", "latest", "none". Default: "latest".
    """

    isolation_level: Literal["read_uncommitted", "read_committed"]
    """"read_committed" leaves out aborted transactions and waits for open ones. Default:
    "read_uncommitted".
    """

    fetch_min_bytes: int
    """The broker answers once it has so much. Default: 1."""

    fetch_max_wait_ms: int
    """Or after this time. Default: 500."""

    fetch_max_bytes: int
    """Most bytes of one answer, and about what a consumer holds in advance. Default: 52_428_800."""

    max_partition_fetch_bytes: int
    """Most bytes of one partition in one answer. Default: 1_048_576."""

    check_crcs: bool
    """Whether to check the CRC of fetched batches. Default: True."""

    client_rack: str | None
    """Where the client runs, for assignors that care (KIP-881). Default: None."""

    allow_auto_create_topics: bool
    """Whether asking for a topic may create it. Default: True."""

    exclude_internal_topics: bool
    """Whether a pattern leaves out topics that Kafka keeps for itself. Default: True."""

    key_deserializer: Callable[[bytes], object] | None
    """Makes something of a key's bytes; not called for null. Default: None."""

    value_deserializer: Callable[[bytes], object] | None
    """Likewise for values. Default: None."""

    consumer_timeout_ms: int | None
    """How long iteration waits for a record before it ends; None: for ever. Default: None."""

    on_commit: OnCommit | None
    """Called with the offsets of each auto-commit, and of each `commit_async` that has no callback
    of its own, and None or the error; inside a later poll or `close`. Default: None.
    """

    event_listener: Callable[[GroupEvent], None] | None
    """Told what the group member does (`kohort.group.events`), in another thread. Default: None."""


class ProducerSettings(ClientSettings, total=False):
    """Settings of `Producer` and `AsyncProducer`."""

    acks: str | int
    """Replicas that must have a record before it counts as sent: "all", 1 (the leader alone) or 0
    (none). Default: "all".
    """

    enable_idempotence: bool
    """Whether the broker refuses duplicates of retries (KIP-98). Default: True."""

    compression_type: str | None
    """"none" (or None), "gzip", "snappy", "lz4" or "zstd". Default: "none"."""

    linger_ms: int
    """How long a batch waits to become fuller. Default: 5."""

    batch_size: int
    """Bytes of a full batch, before compression. While records wait, because the brokers or this
    process do not keep up, a batch may grow to 16 times that, unless `acks` is 0; one that is
    larger than its topic takes is split (KIP-126). Default: 16_384.
    """

    buffer_memory: int
    """Bytes that may wait to be sent; beyond them `send` waits. Default: 33_554_432."""

    max_request_size: int
    """Most bytes of one record, and of one request. Default: 1_048_576."""

    max_block_ms: int
    """How long `send` may wait for memory or metadata. Default: 60_000."""

    delivery_timeout_ms: int
    """After this time a record that is not acknowledged has failed, whatever `request_timeout_ms`
    is. It must be above `linger_ms`; if not set, it is at least `linger_ms` and
    `request_timeout_ms` together. Default: 120_000.
    """

    partitioner: Literal["murmur2", "murmur2_random", "consistent_random"] | Partitioner
    """Chooses the partition of a record that names none. "murmur2" (also "murmur2_random") puts a
    key where Java's producer and kafka-python put it, "consistent_random" where librdkafka does by
    default (CRC32; an empty key counts as none). A callable gets topic, key (bytes or None) and the
    number of partitions; it returns a partition, or None to leave the choice to the producer.
    Records without a key stay together for a batch, then go to another partition. Default:
    "murmur2".
    """

    allow_auto_create_topics: bool
    """Whether asking for a topic that is sent to may create it, if the broker has
    auto.create.topics.enable. Java's producer always allows it. Default: True.
    """

    key_serializer: Callable[..., bytes] | None
    """Makes bytes of a key; not called for None. Default: None."""

    value_serializer: Callable[..., bytes] | None
    """Likewise for values. Default: None."""

    transactional_id: str | None
    """Makes the producer transactional (KIP-98). The same id in each life of one instance of an
    application: a new producer with it ends the transaction of the one before, and shuts that one
    out. It needs Apache Kafka. Default: None.
    """

    transaction_timeout_ms: int
    """The broker aborts a transaction that is open for longer than this; its own
    `transaction.max.timeout.ms` is the most that it accepts. Default: 60_000.
    """


class AdminSettings(ClientSettings, total=False):
    """Settings of `AdminClient` and `AsyncAdminClient`."""

    group_id: str | None
    """The group that calls are about which name none. Default: None."""
