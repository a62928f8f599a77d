"""The operations of AWS's services, as botocore's models have them."""

import functools
from collections.abc import Mapping
from typing import Any

import botocore
import botocore.session

NAMES: Any = botocore
SESSIONS: Any = botocore.session
"""Their functions have no types."""


@functools.cache
def read_operations(service: str) -> Mapping[str, Any]:
    """botocore's model of each operation of a service, by its name in Python."""
    model = SESSIONS.get_session().get_service_model(service)
    return {NAMES.xform_name(name): model.operation_model(name) for name in model.operation_names}
