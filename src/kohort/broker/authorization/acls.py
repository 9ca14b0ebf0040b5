"""ACLs: what each client may do, decided as Apache Kafka's StandardAuthorizer decides it (KIP-801).

An ACL that denies goes before all that allow; what no ACL allows is denied. Super users may do
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
"""The one name of the cluster as a resource."""


class Resource(IntEnum):
    """What an ACL is about, by Kafka's numbers."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Operation(IntEnum):
    """What is done with it."""

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
    """How a name is compared; ANY and MATCH are for filters (KIP-290)."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


# The right to do one of these includes the right to describe.
_IMPLYING = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


class Acl(Struct, frozen=True, order=True):
    """One permission, or prohibition.

    Attributes:
        principal: The user, as `User:alice`; `User:*` means all users.
        operation: What the user does.
        resource: The kind of thing that it is done with.
        name: Its name; `*` with `Pattern.LITERAL` for all of them, "kafka-cluster" for the cluster.
        pattern: Whether names need only begin with `name`.
        permission: Whether it is allowed or denied.
        host: The address of the client; `*` for any.
    """

    principal: str
    operation: Operation
    resource: Resource
    name: str
    pattern: Pattern = Pattern.LITERAL
    permission: Permission = Permission.ALLOW
    host: str = EVERY

    def problem(self) -> str | None:
        """Return why the ACL cannot exist, None if it can."""
        if self.is_vague:
            return "an ACL names one kind of resource, operation, pattern and permission"
        if not self.name:
            return "the name of the resource is empty"
        if self.resource == Resource.CLUSTER and self.name != CLUSTER:
            return f"the cluster is called {CLUSTER}"
        if ":" not in self.principal:
            return f"{self.principal[:100]!r} is no principal like User:alice"
        return None

    @property
    def is_vague(self) -> bool:
        """Whether it has something that is for filters."""
        return self.pattern < Pattern.LITERAL or 1 in (
            self.resource,
            self.operation,
            self.permission,
        )

    def covers(self, resource: Resource, name: str) -> bool:
        """Whether it is about a resource."""
        if self.resource != resource:
            return False
        if self.pattern == Pattern.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, EVERY)

    def is_for(self, principal: str, host: str) -> bool:
        """Whether it is about a principal at a host."""
        return self.principal in (principal, ALL_USERS) and self.host in (host, EVERY)

    def includes(self, operation: Operation) -> bool:
        """Whether it is about an operation; what is allowed may imply others."""
        if self.operation in (operation, Operation.ALL):
            return True
        implied = self.operation in _IMPLYING.get(operation, ())
        return implied and self.permission == Permission.ALLOW


class AclFilter(Struct, frozen=True, kw_only=True):
    """Which ACLs are meant; attributes that are None or ANY fit all."""

    principal: str | None = None
    operation: Operation = Operation.ANY
    resource: Resource = Resource.ANY
    name: str | None = None
    pattern: Pattern = Pattern.ANY
    permission: Permission = Permission.ANY
    host: str | None = None

    def fits(self, acl: Acl) -> bool:
        """Whether an ACL is meant."""
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
        super_users: The principals that may do everything.
        path: File with the ACLs; made with the first one.
        storage: Tells what the operating system refuses.

    Raises:
        DataDirectoryError: The file is damaged or cannot be read.
    """

    def __init__(self, super_users: Iterable[str], path: Path, storage: Storage) -> None:
        self._super = frozenset(super_users)
        self._path, self._storage = path, storage
        self._acls = frozenset(_read(path))

    def found(self, wanted: AclFilter) -> list[Acl]:
        """Return the ACLs that a filter means, in order."""
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
        """Whether a principal may do something."""
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
        """Whether a principal may do something with any resource of a kind (KIP-679)."""
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
    """Whether an ACL denies all that another allows."""
    if no.pattern == Pattern.PREFIXED:
        return yes.name.startswith(no.name) and yes.name != EVERY
    return no.name == EVERY or (no.name == yes.name and yes.pattern == Pattern.LITERAL)


class Rights(Struct, frozen=True):
    """What one client may do.

    Attributes:
        acls: The ACLs; None: there are none, and it may do everything.
        principal: Who it is.
        host: Where it is.
    """

    acls: Acls | None
    principal: str
    host: str

    def may(self, operation: Operation, resource: Resource, name: str = CLUSTER) -> bool:
        """Whether it may do something."""
        acls = self.acls
        return acls is None or acls.allows(self.principal, self.host, operation, resource, name)

    def may_any(self, operation: Operation, resource: Resource) -> bool:
        """Whether it may do something with any resource of a kind."""
        acls = self.acls
        return acls is None or acls.allows_any(self.principal, self.host, operation, resource)

    def operations(self, resource: Resource, name: str, possible: int) -> int:
        """Return what it may do of all that is possible, one bit for each operation (KIP-430)."""
        asked = (each for each in Operation if possible >> each & 1)
        return sum(1 << each for each in asked if self.may(each, resource, name))


def principal_of(certificate: Mapping[str, object] | None) -> str:
    """Return who has a certificate, as Apache Kafka names its subject (RFC 2253).

    Args:
        certificate: As `ssl.SSLSocket.getpeercert` has it; None or empty: there is none.
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
    """Return ACLs if there can be such.

    Raises:
        ConfigError: An ACL cannot exist; says why.
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
            f"{path}, the ACLs, is damaged ({error}); put it back from a copy, or remove it and "
            "set them again"
        ) from error
