"""Types of the values of a deployment's settings."""

from ipaddress import IPv4Network
from typing import Annotated

from pydantic import AfterValidator, StringConstraints

type Arn = Annotated[str, StringConstraints(pattern=r"^arn:[\w-]+:")]
type Name = Annotated[str, StringConstraints(pattern=r"^([a-z][a-z0-9]*(-[a-z0-9]+)*)?$")]
"""A valid database identifier: no hyphen at the end and no two in a row."""
type Scalar = str | int | float | bool
_LOG_RETENTION_DAYS = (
    *(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180),
    *(365, 400, 545, 731, 1096, 1827, 3653),
)


def _require_log_retention_days(days: int) -> int:
    if days not in _LOG_RETENTION_DAYS:
        raise ValueError(
            f"CloudWatch keeps logs for one of {', '.join(map(str, _LOG_RETENTION_DAYS))} days"
        )
    return days


def _require_address_range(cidr: str) -> str:
    if not 16 <= IPv4Network(cidr).prefixlen <= 22:
        raise ValueError("a VPC has an IPv4 range from a /16 to a /22 here, such as 10.1.0.0/16")
    return cidr


type LogDays = Annotated[int, AfterValidator(_require_log_retention_days)]
"""Days for which CloudWatch can keep logs."""
type AddressRange = Annotated[str, AfterValidator(_require_address_range)]
"""An IPv4 range of a VPC that has room for the stack's subnets."""
