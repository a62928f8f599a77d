"""Times that callers, files and models give. There is one rule for all of them, so that whatever is
stored can be read again: by Python, by the database, and in UTC."""

import re
import sys
from datetime import date, datetime, timedelta, timezone

FIRST_MOMENT = datetime.min.replace(tzinfo=timezone.utc)
LAST_MOMENT = datetime.max.replace(tzinfo=timezone.utc)
MIN_SECONDS, MAX_SECONDS = -62_135_596_800, 253_402_300_799
"""The first and the last whole second of the years 1 to 9999, in Unix seconds."""
_MAX_OFFSET = timedelta(hours=16)
"""Postgres takes offsets below this one."""
_RULE = "must be RFC 3339 with a time zone (2026-05-08T13:56:00Z) or Unix seconds"
_NO_ZONE = f"{_RULE}: it has no time zone; add Z for UTC, or an offset such as +02:00"
_DATE_ALONE = f"{_RULE}: it has no time zone; give a date with its time, as in 2026-05-08T00:00:00Z"
_MILLISECONDS = f"{_RULE}: a number this large is milliseconds or less; send seconds"
_OUT_OF_RANGE = f"{_RULE}, within the years 1 to 9999 in UTC"
_OFFSET = f"{_RULE}: its offset must be below 16 hours"
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_LEAP_SECOND = re.compile(r"(?<=[T ]\d{2}:\d{2}):60", re.ASCII)
_SECONDS = re.compile(r"-?\d{9,20}(\.\d{1,9})?", re.ASCII)
"""Unix seconds in an address, where all is text. With fewer digits it could be a date."""


def parse_moment(value: object) -> datetime:
    """Parse RFC 3339 with an offset, or Unix seconds, to a UTC datetime. Raises ValueError, which
    says what to send instead and does not repeat the value."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _parse_unix_seconds(value)
    if not isinstance(value, (str, datetime)):
        raise ValueError(_RULE)
    if isinstance(value, str) and _SECONDS.fullmatch(value):
        return _parse_unix_seconds(float(value))
    moment = value if isinstance(value, datetime) else _parse_rfc3339_text(value)
    offset = moment.utcoffset()
    if offset is None:
        is_date = isinstance(value, str) and _DATE.fullmatch(value)
        raise ValueError(_DATE_ALONE if is_date else _NO_ZONE)
    if abs(offset) >= _MAX_OFFSET:
        raise ValueError(_OFFSET)
    try:
        return moment.astimezone(timezone.utc)
    except OverflowError:
        raise ValueError(_OUT_OF_RANGE) from None


def parse_date_or_moment(value: object) -> datetime:
    """Parse a date alone (2026-05-08), which is its first moment in UTC, or what `parse_moment`
    parses. Raises ValueError."""
    if isinstance(value, date) and not isinstance(value, datetime):
        value = value.isoformat()
    if isinstance(value, str) and _DATE.fullmatch(value):
        value += "T00:00:00Z"
    try:
        return parse_moment(value)
    except ValueError as error:
        raise ValueError(str(error).replace("must be", "must be a date (2026-05-08),", 1)) from None


def format_moment(moment: datetime) -> str:
    """A moment in UTC as answers have it, such as `2026-05-08T13:56:00Z`."""
    return moment.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


def _parse_unix_seconds(value: float) -> datetime:
    try:
        return datetime.fromtimestamp(value, timezone.utc)
    except (ValueError, OverflowError, OSError):
        is_too_fine = MAX_SECONDS < value <= MAX_SECONDS * 10**9
        raise ValueError(_MILLISECONDS if is_too_fine else _OUT_OF_RANGE) from None


def _parse_rfc3339_text(value: str) -> datetime:
    """A leap second is the first second of the next minute."""
    value = value.upper() if value.isascii() else value
    value, leap_count = _LEAP_SECOND.subn(":59", value)
    if sys.version_info < (3, 11):  # the client's; its own takes neither Z nor all fractions
        value = re.sub("Z$", "+00:00", value)
        value = re.sub(r"\.(\d{1,6})\d*", lambda digits: f".{digits[1]:0<6}", value)
    try:
        return datetime.fromisoformat(value) + timedelta(seconds=leap_count)
    except ValueError:
        raise ValueError(_RULE) from None
    except OverflowError:
        raise ValueError(_OUT_OF_RANGE) from None
