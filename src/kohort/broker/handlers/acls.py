"""DescribeAcls, CreateAcls and DeleteAcls (KIP-140, KIP-290)."""

from __future__ import annotations

from enum import IntEnum
from itertools import groupby
from typing import TypeVar

from kohort.broker.authorization.acls import (
    Acl,
    AclFilter,
    Acls,
    Operation,
    Pattern,
    Permission,
    Resource,
)
from kohort.broker.context import BrokerContext, Caller
from kohort.errors import ErrorCode, KafkaError, clipped
from kohort.wire.messages.acls import (
    AclCreation,
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

E = TypeVar("E", bound=IntEnum)

_NO_AUTHORIZER = "No Authorizer is configured."


def describe_acls(
    broker: BrokerContext, request: DescribeAclsRequest, _caller: Caller
) -> DescribeAclsResponse:
    """Return the ACLs that a filter selects, grouped by resource."""
    if broker.acls is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_AUTHORIZER, resources=()
        )
    try:
        found = broker.acls.found(_filter(request))
    except KafkaError:
        found = []  # no ACL has such a value; this is no error in Kafka either
    by_resource = sorted(found, key=_resource_of)
    return DescribeAclsResponse(
        error_code=ErrorCode.NONE,
        resources=tuple(
            DescribeAclsResource(
                resource_type=kind,
                resource_name=name,
                pattern_type=pattern,
                acls=tuple(map(_described, acls)),
            )
            for (kind, name, pattern), acls in groupby(by_resource, _resource_of)
        ),
    )


def _resource_of(acl: Acl) -> tuple[int, str, int]:
    return acl.resource, acl.name, acl.pattern


def _described(acl: Acl) -> AclDescription:
    return AclDescription(
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def create_acls(
    broker: BrokerContext, request: CreateAclsRequest, _caller: Caller
) -> CreateAclsResponse:
    """Add each valid ACL."""
    if broker.acls is None:
        refused = AclCreationResult(
            error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_AUTHORIZER
        )
        return CreateAclsResponse(results=(refused,) * len(request.creations))
    if any(map(_is_vague, request.creations)):
        failed = AclCreationResult(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        return CreateAclsResponse(results=(failed,) * len(request.creations))
    added: list[Acl] = []
    results: list[AclCreationResult] = []
    for creation in request.creations:
        try:
            added.append(_made(creation))
            results.append(AclCreationResult(error_code=ErrorCode.NONE))
        except KafkaError as error:
            results.append(
                AclCreationResult(error_code=error.code, error_message=clipped(error.message))
            )
    try:
        broker.acls.change(added=added)
    except KafkaError as error:
        failed = AclCreationResult(error_code=error.code, error_message=clipped(error.message))
        results = [each if each.error_code else failed for each in results]
    return CreateAclsResponse(results=tuple(results))


def _is_vague(creation: AclCreation) -> bool:
    """Whether a field has a value that only filters may have: Kafka then fails the request."""
    return creation.resource_pattern_type < Pattern.LITERAL or 1 in (
        creation.resource_type,
        creation.operation,
        creation.permission_type,
    )


def _made(creation: AclCreation) -> Acl:
    acl = Acl(
        principal=creation.principal,
        operation=_known(Operation, creation.operation),
        resource=_known(Resource, creation.resource_type),
        name=creation.resource_name,
        pattern=_known(Pattern, creation.resource_pattern_type),
        permission=_known(Permission, creation.permission_type),
        host=creation.host,
    )
    problem = acl.problem()
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)
    return acl


def delete_acls(
    broker: BrokerContext, request: DeleteAclsRequest, _caller: Caller
) -> DeleteAclsResponse:
    """Remove the ACLs that the filters select."""
    acls = broker.acls
    if acls is None:
        return DeleteAclsResponse(
            filter_results=(_failed(ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER),)
            * len(request.filters)
        )
    removed: set[Acl] = set()
    results = tuple(_deleted(acls, wanted, removed) for wanted in request.filters)
    try:
        acls.change(removed=removed)
    except KafkaError as error:
        failed = _failed(error.code, error.message)
        results = tuple(each if each.error_code else failed for each in results)
    return DeleteAclsResponse(filter_results=results)


def _deleted(acls: Acls, wanted: DeleteAclsFilter, removed: set[Acl]) -> DeleteAclsFilterResult:
    try:
        found = acls.found(_filter(wanted))
    except KafkaError as error:
        return _failed(error.code, error.message)
    removed.update(found)
    return DeleteAclsFilterResult(
        error_code=ErrorCode.NONE,
        matching_acls=tuple(
            DeleteAclsMatchingAcl(
                error_code=ErrorCode.NONE,
                resource_type=acl.resource,
                resource_name=acl.name,
                pattern_type=acl.pattern,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in found
        ),
    )


def _failed(code: int, message: str | None) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=code, error_message=clipped(message), matching_acls=())


def _filter(wanted: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        principal=wanted.principal_filter,
        operation=_known(Operation, wanted.operation),
        resource=_known(Resource, wanted.resource_type_filter),
        name=wanted.resource_name_filter,
        pattern=_known(Pattern, wanted.pattern_type_filter),
        permission=_known(Permission, wanted.permission_type),
        host=wanted.host_filter,
    )


def _known(kind: type[E], number: int) -> E:
    try:
        return kind(number)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{number} is not a valid {kind.__name__.lower()} of an ACL"
        ) from None
