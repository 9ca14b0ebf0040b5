"""ACLs, evaluated as Apache Kafka's StandardAuthorizer does (KIP-801).

A denying ACL overrides all that allow, and whatever no ACL allows is denied. Super users may do
everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import IntEnum
from pathlib import Path

import msgspec
from msgspec import Struct

from kohort.broker.log.directory import DataDirectoryError
from kohort.broker.log.files import replace_file
from kohort.broker.log.storage import Storage
from kohort.errors import ConfigError

ANONYMOUS = "User:ANONYMOUS"
ALL_USERS = "User:*"
EVERY = "*"
"""Any host; as the name of a literal resource, any resource."""

CLUSTER = "kafka-cluster"
"""The only name of the cluster resource."""


class Resource(IntEnum):
    """The resource types of ACLs, by Kafka's numbers."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Operation(IntEnum):
    """The operations of ACLs, by Kafka's numbers."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Whether an ACL denies or allows."""

    ANY = 1
    DENY = 2
    ALLOW = 3


class Pattern(IntEnum):
    """How a resource name is matched; ANY and MATCH are for filters (KIP-290)."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


# Permission for one of these operations implies permission to describe.
_IMPLYING = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


class Acl(Struct, frozen=True, order=True):
    """A permission or a prohibition.

    Attributes:
        principal: The user, as `User:alice`; `User:*` means all users.
        operation: The operation.
        resource: The resource type.
        name: The resource name; `*` with `Pattern.LITERAL` for all, "kafka-cluster" for the
            cluster.
        pattern: Whether the resource has this name, or a name that starts with it.
        permission: Whether the operation is allowed or denied.
        host: Address of the client; `*` for any.
    """

    principal: str
    operation: Operation
    resource: Resource
    name: str
    pattern: Pattern = Pattern.LITERAL
    permission: Permission = Permission.ALLOW
    host: str = EVERY

    def problem(self) -> str | None:
        """Return why the ACL is invalid, or None if it is valid."""
        if self.is_vague:
            return "an ACL needs one resource type, operation, pattern and permission, not ANY"
        if not self.name:
            return "the resource name is empty"
        if self.resource == Resource.CLUSTER and self.name != CLUSTER:
            return f"the name of the cluster resource is {CLUSTER}"
        if ":" not in self.principal:
            return f"{self.principal[:100]!r} is not a principal such as User:alice"
        return None

    @property
    def is_vague(self) -> bool:
        """Whether a field has a value that only filters may have."""
        return self.pattern < Pattern.LITERAL or 1 in (
            self.resource,
            self.operation,
            self.permission,
        )

    def covers(self, resource: Resource, name: str) -> bool:
        """Whether the ACL applies to a resource."""
        if self.resource != resource:
            return False
        if self.pattern == Pattern.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, EVERY)

    def is_for(self, principal: str, host: str) -> bool:
        """Whether the ACL applies to a principal on a host."""
        return self.principal in (principal, ALL_USERS) and self.host in (host, EVERY)

    def includes(self, operation: Operation) -> bool:
        """Whether the ACL applies to an operation; allowed ones may imply others."""
        if self.operation in (operation, Operation.ALL):
            return True
        implied = self.operation in _IMPLYING.get(operation, ())
        return implied and self.permission == Permission.ALLOW


class AclFilter(Struct, frozen=True, kw_only=True):
    """Selects ACLs; attributes that are None or ANY match all."""

    principal: str | None = None
    operation: Operation = Operation.ANY
    resource: Resource = Resource.ANY
    name: str | None = None
    pattern: Pattern = Pattern.ANY
    permission: Permission = Permission.ANY
    host: str | None = None

    def fits(self, acl: Acl) -> bool:
        """Whether the filter selects an ACL."""
        pairs = (
            (self.resource, acl.resource),
            (self.operation, acl.operation),
            (self.permission, acl.permission),
        )
        return (
            all(wanted in (1, given) for wanted, given in pairs)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self._fits_name(acl)
        )

    def _fits_name(self, acl: Acl) -> bool:
        if self.pattern not in (Pattern.ANY, Pattern.MATCH, acl.pattern):
            return False
        if self.name is None:
            return True
        if self.pattern == Pattern.MATCH:
            return acl.covers(acl.resource, self.name)
        return self.name == acl.name


class Acls:
    """The ACLs of one broker.

    Args:
        super_users: Principals that may do everything.
        path: File that stores the ACLs; created with the first one.
        storage: Reports errors of the operating system.

    Raises:
        DataDirectoryError: The file is damaged or cannot be read.
    """

    def __init__(self, super_users: Iterable[str], path: Path, storage: Storage) -> None:
        self._super = frozenset(super_users)
        self._path, self._storage = path, storage
        self._acls = frozenset(_read(path))

    def found(self, wanted: AclFilter) -> list[Acl]:
        """Return the ACLs that a filter selects, in order."""
        return sorted(acl for acl in self._acls if wanted.fits(acl))

    def change(self, added: Iterable[Acl] = (), removed: Iterable[Acl] = ()) -> None:
        """Add and remove ACLs.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, and nothing has changed.
        """
        acls = (self._acls - {*removed}) | {*added}
        if acls == self._acls:
            return
        with self._storage.writing(self._path):
            replace_file(self._path, msgspec.json.encode(sorted(acls)), mode=0o600)
        self._acls = acls

    def allows(
        self, principal: str, host: str, operation: Operation, resource: Resource, name: str
    ) -> bool:
        """Whether a principal may perform an operation on a resource."""
        if principal in self._super:
            return True
        found = [
            acl.permission
            for acl in self._acls
            if acl.is_for(principal, host)
            and acl.covers(resource, name)
            and acl.includes(operation)
        ]
        return bool(found) and Permission.DENY not in found

    def allows_any(
        self, principal: str, host: str, operation: Operation, resource: Resource
    ) -> bool:
        """Whether a principal may perform an operation on any resource of a type (KIP-679)."""
        if principal in self._super:
            return True
        found = [
            acl
            for acl in self._acls
            if acl.is_for(principal, host)
            and acl.resource == resource
            and acl.operation in (operation, Operation.ALL)
        ]
        denied = [acl for acl in found if acl.permission == Permission.DENY]
        allowed = (acl for acl in found if acl.permission == Permission.ALLOW)
        return any(not any(_dominates(no, yes) for no in denied) for yes in allowed)


def _dominates(no: Acl, yes: Acl) -> bool:
    """Whether a denying ACL covers all that an allowing one allows."""
    if no.pattern == Pattern.PREFIXED:
        return yes.name.startswith(no.name) and yes.name != EVERY
    return no.name == EVERY or (no.name == yes.name and yes.pattern == Pattern.LITERAL)


class Rights(Struct, frozen=True):
    """The permissions of one client.

    Attributes:
        acls: The ACLs; None: there is no authorization, and the client may do everything.
        principal: Principal of the client.
        host: Address of the client.
    """

    acls: Acls | None
    principal: str
    host: str

    def may(self, operation: Operation, resource: Resource, name: str = CLUSTER) -> bool:
        """Whether the client may perform an operation on a resource."""
        acls = self.acls
        return acls is None or acls.allows(self.principal, self.host, operation, resource, name)

    def may_any(self, operation: Operation, resource: Resource) -> bool:
        """Whether the client may perform an operation on any resource of a type."""
        acls = self.acls
        return acls is None or acls.allows_any(self.principal, self.host, operation, resource)

    def operations(self, resource: Resource, name: str, possible: int) -> int:
        """Return the operations that the client may perform, one bit each (KIP-430)."""
        asked = (each for each in Operation if possible >> each & 1)
        return sum(1 << each for each in asked if self.may(each, resource, name))


def principal_of(certificate: Mapping[str, object] | None) -> str:
    """Return the principal of a certificate, named as Apache Kafka does (RFC 2253).

    Args:
        certificate: Result of `ssl.SSLSocket.getpeercert`; None or empty: no certificate.
    """
    subject = (certificate or {}).get("subject")
    if not isinstance(subject, tuple):
        return ANONYMOUS
    names = ("+".join(_attribute(*pair) for pair in each) for each in reversed(subject))
    return f"User:{','.join(names)}"


_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}


def _attribute(name: str, value: str) -> str:
    escaped = "".join(f"\\{each}" if each in ',=+<>#;"\\' else each for each in value)
    escaped = escaped.replace("\0", "\\00")
    escaped = re.sub(r"^ +| +\Z", lambda blanks: "\\ " * len(blanks[0]), escaped)
    return f"{_SHORT.get(name, name)}={escaped}"


def checked(acls: Iterable[Acl]) -> list[Acl]:
    """Return ACLs after checking that they are valid.

    Raises:
        ConfigError: An ACL is invalid, with the reason.
    """
    found = list(acls)
    for acl in found:
        if (problem := acl.problem()) is not None:
            raise ConfigError(f"{acl}: {problem}")
    return found


def _read(path: Path) -> list[Acl]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Acl])
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DataDirectoryError(f"{path} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise DataDirectoryError(
            f"{path}, the file of the ACLs, is damaged ({error}); restore it from a backup, or "
            "remove it and create the ACLs again"
        ) from error
