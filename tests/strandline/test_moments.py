"""Times as they come in: one rule for every route, file and model."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from strandline.moments import (
    FIRST_MOMENT,
    LAST_MOMENT,
    format_moment,
    parse_date_or_moment,
    parse_moment,
)
from strandline.schemas import DateOrMoment, Moment

NOON = datetime(2026, 5, 8, 12, tzinfo=UTC)
OFFSETS = st.integers(-(16 * 60 - 1), 16 * 60 - 1).map(lambda m: timezone(timedelta(minutes=m)))


@pytest.mark.parametrize(
    ("value", "moment"),
    [
        ("2026-05-08T12:00:00Z", NOON),
        ("2026-05-08T14:00:00+02:00", NOON),
        ("2026-05-08T12:00:00.000Z", NOON),
        (1778241600, NOON),
        (1778241600.0, NOON),
        ("1778241600.000", NOON),
        ("1778241600.00", NOON),
        (NOON.astimezone(timezone(timedelta(hours=-8))), NOON),
        ("0001-01-01T00:00:00Z", FIRST_MOMENT),
        ("9999-12-31T23:59:59.999999Z", LAST_MOMENT),
        ("2026-05-08t12:00:00.5z", NOON + timedelta(seconds=0.5)),
        ("2026-05-08T11:59:60Z", NOON),
        ("2026-05-08 13:59:60.25+02:00", NOON + timedelta(seconds=0.25)),
        ("9999-12-31T08:00:00+14:00", datetime(9999, 12, 30, 18, tzinfo=UTC)),
    ],
)
def test_moment_is_parsed_to_utc(value: object, moment: datetime) -> None:
    assert parse_moment(value) == moment
    assert parse_moment(value).tzinfo is UTC


@pytest.mark.parametrize(
    ("value", "way_out"),
    [
        (1778241600000, "milliseconds"),
        (1778241600000000, "milliseconds"),
        ("1778241600000.0", "milliseconds"),
        ("20260508", "no time zone"),
        (1e30, "years 1 to 9999"),
        (-1e15, "years 1 to 9999"),
        (float("nan"), "years 1 to 9999"),
        (float("inf"), "years 1 to 9999"),
        (10**400, "years 1 to 9999"),
        ("2026-05-08T13:56:00", "no time zone"),
        ("2026-05-08", "no time zone; give a date with its time, as in 2026-05-08T00:00:00Z"),
        (datetime(2026, 5, 8), "no time zone"),  # noqa: DTZ001
        ("9999-12-31T23:59:59-14:00", "years 1 to 9999"),
        ("0001-01-01T00:00:00+14:00", "years 1 to 9999"),
        ("9999-12-31T23:59:60Z", "years 1 to 9999"),
        ("2026-05-08T11:60:00Z", "RFC 3339"),
        ("2026-05-08T11:59:61Z", "RFC 3339"),
        ("2026-01-01T00:00:00+23:59", "16 hours"),
        ("10000-01-01T00:00:00Z", "RFC 3339"),
        ("infinity", "RFC 3339"),
        ("", "RFC 3339"),
        (True, "RFC 3339"),
        (None, "RFC 3339"),
        ([], "RFC 3339"),
        (date(2026, 5, 8), "RFC 3339"),
    ],
)
def test_moment_refusal_says_what_to_send(value: object, way_out: str) -> None:
    with pytest.raises(ValueError, match="RFC 3339") as refusal:
        parse_moment(value)
    assert way_out in str(refusal.value)
    with pytest.raises(ValidationError):
        TypeAdapter[datetime](Moment).validate_python(value)


def test_moment_of_date_is_midnight() -> None:
    midnight = datetime(2026, 5, 8, tzinfo=UTC)
    for value in ("2026-05-08", date(2026, 5, 8), "2026-05-08T02:00:00+02:00", midnight):
        assert parse_date_or_moment(value) == midnight
        assert TypeAdapter[datetime](DateOrMoment).validate_python(value) == midnight
    for wrong in ("2026-02-30", "2026-5-8", "2026-05-08T00:00:00", "not a date", "20260508"):
        with pytest.raises(ValueError, match="must be a date"):
            parse_date_or_moment(wrong)


@given(st.datetimes(timezones=OFFSETS))
def test_moment_is_within_years_of_utc(moment: datetime) -> None:
    if not FIRST_MOMENT <= moment <= LAST_MOMENT:
        with pytest.raises(ValueError, match="years 1 to 9999"):
            parse_moment(moment.isoformat())
        return
    parsed = parse_moment(moment.isoformat())
    assert FIRST_MOMENT <= parsed <= LAST_MOMENT
    assert parsed == parse_moment(format_moment(parsed)) == moment


@given(st.one_of(st.integers(), st.floats(), st.text(), st.datetimes(), st.dates()))
def test_moment_of_any_value_is_parsed_or_refused(value: object) -> None:
    for parse in (parse_moment, parse_date_or_moment):
        try:
            assert parse(value).tzinfo is UTC
        except ValueError:
            continue
