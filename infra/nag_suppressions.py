"""Acknowledges findings of cdk-nag, each at its construct and with its reason."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from aws_cdk import Acknowledgment, Stack, Validations
from aws_cdk import aws_iam as iam
from constructs import IConstruct


def acknowledge_nag_findings(construct: IConstruct, reasons: Mapping[str, str]) -> None:
    """Acknowledge findings on this construct and its children: rule → reason."""
    for rule, reason in reasons.items():
        acknowledgment = Acknowledgment(id=f"AwsSolutions-{rule}", reason=reason)
        Validations.of(construct).acknowledge(acknowledgment)


def acknowledge_role_wildcards(
    role: IConstruct, allowed: Sequence[iam.PolicyStatement], reasons: Mapping[str, str]
) -> None:
    """Acknowledge the wildcards in a role's statements that match a pattern: pattern → reason. A
    wildcard that matches none remains a finding."""
    stack = Stack.of(role)
    for wildcard in sorted(
        {
            w
            for statement in allowed
            for w in _iterate_statement_wildcards(stack.resolve(statement.to_statement_json()))
        }
    ):
        for pattern, reason in reasons.items():
            if re.search(pattern, wildcard):
                acknowledge_nag_findings(role, {f"IAM5[{wildcard}]": reason})
                break


def _iterate_statement_wildcards(statement: Mapping[str, Any]) -> Iterator[str]:
    """The wildcards of a statement, in cdk-nag's spelling."""
    for kind in ("Action", "Resource"):
        values: Any = statement[kind]
        for value in cast(list[Any], values) if isinstance(values, list) else [values]:
            if "*" in (text := _render_template_expression(value)):
                yield f"{kind}::{text}"


def _render_template_expression(value: Any) -> str:
    """A template's expression as one string; a reference becomes `<name>`."""
    match value:
        case {"Fn::Join": [str(between), parts]}:
            return between.join(map(_render_template_expression, parts))
        case {"Fn::GetAtt": [name, attribute]}:
            return f"<{name}.{attribute}>"
        case {"Ref": name}:
            return f"<{name}>"
        case _:
            return str(value)
