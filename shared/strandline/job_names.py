"""The names of the background jobs. `function_specs` says what runs each of them."""

from typing import Literal, get_args

from typing_extensions import TypeAliasType

JobName = TypeAliasType(
    "JobName", Literal["archiver", "analytics", "builder", "eraser", "promoter", "sweeper"]
)


def quote_job_names(conjunction: Literal["and", "or"]) -> str:
    """The names of all jobs for the API's document, as in "`a`, `b` and `c`"."""
    *others, last = (f"`{name}`" for name in get_args(JobName.__value__))
    return f"{', '.join(others)} {conjunction} {last}"
