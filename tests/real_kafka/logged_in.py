"""A client of one blocking socket that logs in by PLAIN, and what it may do by ACLs."""

from __future__ import annotations

from kohort.values import replace
from kohort.wire.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from kohort.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.broker.peer import Peer
from tests.broker.processes import eventually

ANY, ACLS, WAIT_S = 1, 3, 60


class UserPeer(Peer):
    """A connection of a user."""

    def __init__(self, bootstrap_servers: str, user: str, password: str) -> None:
        super().__init__(bootstrap_servers)
        assert self.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        said = f"\0{user}\0{password}".encode()
        assert self.ask(SaslAuthenticateRequest(auth_bytes=said), 2).error_code == 0

    def have_acls(self, *creations: AclCreation) -> None:
        """Have these ACLs and no others, and wait until the broker knows them."""
        everything = DeleteAclsFilter(
            resource_type_filter=ANY,
            resource_name_filter=None,
            pattern_type_filter=ANY,
            principal_filter=None,
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        )
        self.ask(DeleteAclsRequest(filters=(everything,)), ACLS)
        eventually(lambda: self.acls() == 0, "that no ACL is left", WAIT_S)
        answer = self.ask(CreateAclsRequest(creations=creations), ACLS)
        assert {each.error_code for each in answer.results} <= {0}, answer
        eventually(lambda: self.acls() == len({*creations}), "all ACLs", WAIT_S)

    def acls(self) -> int:
        """How many there are."""
        request = DescribeAclsRequest(
            resource_type_filter=ANY,
            resource_name_filter=None,
            pattern_type_filter=ANY,
            principal_filter=None,
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        )
        return sum(len(each.acls) for each in self.ask(request, ACLS).resources)


def acl(user: str, resource: int, name: str, operation: int, **others: object) -> AclCreation:
    """An ACL that allows a user something at any host, unless `others` say otherwise."""
    allowed = AclCreation(
        resource_type=resource,
        resource_name=name,
        principal=f"User:{user}",
        host="*",
        operation=operation,
        permission_type=3,
    )
    return replace(allowed, **others)  # type: ignore[arg-type]  # they are its fields
