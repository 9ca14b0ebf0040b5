"""Create, find and delete ACLs (KIP-140)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, cast

from kohort.client.admin.acl_values import (
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSION_TYPES,
    RESOURCE_TYPES,
    AclBinding,
    AclBindingFilter,
)
from kohort.client.admin.errors import check, check_each, check_results, error_of, lacking
from kohort.client.net.backoff import Deadline
from kohort.client.net.cluster import Cluster
from kohort.errors import KohortError, RemoteProtocolError
from kohort.wire.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DescribeAclsRequest,
)

log = logging.getLogger("kohort.client")


async def create_acls(cluster: Cluster, acls: Sequence[AclBinding], deadline: Deadline) -> None:
    """Create ACLs; an existing ACL is not an error."""
    wanted = list(dict.fromkeys(acls))
    request = CreateAclsRequest(creations=tuple(_creation(each) for each in wanted))
    answer = await cluster.send_any_until(request, deadline)
    results = dict(zip(wanted, answer.results, strict=False))
    check_each(
        {
            each: error_of(
                results[each].error_code, _shown(each), results[each].error_message, needs="ALTER"
            )
            if each in results
            else lacking(_shown(each))
            for each in wanted
        }
    )


async def describe_acls(
    cluster: Cluster, wanted: AclBindingFilter, deadline: Deadline
) -> list[AclBinding]:
    """Return the ACLs that match a filter, in order."""
    request = DescribeAclsRequest(**_filter(wanted))
    answer = await cluster.send_any_until(request, deadline)
    check(answer.error_code, "ACLs", answer.error_message, needs="DESCRIBE")
    return sorted(
        _binding(resource.resource_type, resource.resource_name, resource.pattern_type, each)
        for resource in answer.resources
        for each in resource.acls
    )


async def delete_acls(
    cluster: Cluster, filters: Sequence[AclBindingFilter], deadline: Deadline
) -> dict[AclBindingFilter, list[AclBinding]]:
    """Delete the ACLs that match filters; return the deleted ones of each."""
    wanted = list(dict.fromkeys(filters))
    asked = tuple(DeleteAclsFilter(**_filter(each)) for each in wanted)
    answer = await cluster.send_any_until(DeleteAclsRequest(filters=asked), deadline)
    if deadline.lost is not None:
        log.warning(
            "delete_acls: an earlier attempt may have deleted ACLs that the result omits,"
            " its answer was lost: %s",
            deadline.lost,
        )
    results = dict(zip(wanted, answer.filter_results, strict=False))
    return check_results(
        {
            each: _deleted(each, results[each]) if each in results else lacking(_shown(each))
            for each in wanted
        }
    )


def _deleted(
    wanted: AclBindingFilter, result: DeleteAclsFilterResult
) -> list[AclBinding] | KohortError:
    """Return the ACLs that a filter deleted, or why it did not delete all that match."""
    said = [(result.error_code, result.error_message)]
    said += [(each.error_code, each.error_message) for each in result.matching_acls]
    for code, message in said:
        error = error_of(code, _shown(wanted), message, needs="ALTER")
        if error is not None:
            return error
    return sorted(
        _binding(each.resource_type, each.resource_name, each.pattern_type, each)
        for each in result.matching_acls
    )


def _creation(acl: AclBinding) -> AclCreation:
    return AclCreation(
        resource_type=RESOURCE_TYPES[acl.resource_type],
        resource_name=acl.name,
        resource_pattern_type=PATTERN_TYPES[acl.pattern_type],
        principal=acl.principal,
        host=acl.host,
        operation=OPERATIONS[acl.operation],
        permission_type=PERMISSION_TYPES[acl.permission_type],
    )


def _filter(wanted: AclBindingFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": RESOURCE_TYPES[wanted.resource_type],
        "resource_name_filter": wanted.name,
        "pattern_type_filter": PATTERN_TYPES[wanted.pattern_type],
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": OPERATIONS[wanted.operation],
        "permission_type": PERMISSION_TYPES[wanted.permission_type],
    }


def _binding(
    kind: int,
    name: str,
    pattern: int,
    acl: Any,  # noqa: ANN401  # two structs have the same attributes, and no common class
) -> AclBinding:
    return AclBinding(
        resource_type=_word(RESOURCE_TYPES, kind),
        name=name,
        pattern_type=_word(PATTERN_TYPES, pattern),
        principal=acl.principal,
        host=acl.host,
        operation=_word(OPERATIONS, acl.operation),
        permission_type=_word(PERMISSION_TYPES, acl.permission_type),
    )


def _word(words: Mapping[str, int], number: int) -> Any:  # noqa: ANN401  # one of several Literals
    for word, each in words.items():
        if each == number:
            return word
    known = ", ".join(words)
    raise RemoteProtocolError(f"an ACL has {number}, of which only {known} are known here")


def _shown(acl: AclBinding | AclBindingFilter) -> str:
    given = cast("dict[str, object]", {name: getattr(acl, name) for name in acl.__struct_fields__})
    said = (str(value) for value in given.values() if value not in (None, "any"))
    return f"ACL {' '.join(said)}".strip()
