"""Draw docs/heat.svg: how a chain's warmth goes over 14 days, by how often it is recalled.

    python -m tests.bench.heat_plot

The same bytes each time, from `heat.py` alone; a test holds the file to it.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from strandline.chains.heat import AccessState, HeatState, apply_recalls, compute_heat
from strandline.tuning import DEFAULTS

FILE = Path(__file__).parents[2] / "docs" / "heat.svg"
DAYS = 14
_CREATED_AT = datetime(2026, 5, 1, tzinfo=UTC)
_CHAIN = HeatState(importance=0.8, density=1.0, strength=1.0, accessed_at=_CREATED_AT)
_STEP = timedelta(hours=1)
_WIDTH, _HEIGHT, _LEFT_MARGIN, _TOP = 600, 300, 60, 62


class Pattern(NamedTuple):
    """Who recalls a chain when."""

    label: str
    colour: str
    dash: str
    days: Sequence[int]
    """After its making."""


PATTERNS = (
    Pattern("never recalled", "#6b7280", "2 3", ()),
    Pattern("once, on day 2", "#b45309", "7 3", (2,)),
    Pattern("every third day", "#1d4ed8", "", range(3, DAYS, 3)),
    Pattern("daily", "#047857", "", range(1, DAYS)),
)
THRESHOLDS = (
    ("promote 0.3", DEFAULTS.promote),
    ("freezing 0.1", DEFAULTS.freezing),
)


def course(days: Sequence[int]) -> Iterator[tuple[float, float]]:
    """Day and heat, hour by hour; twice at a recall: before and after it."""
    use, state, now = AccessState(_CHAIN.strength, None, _CREATED_AT), _CHAIN, _CREATED_AT
    recalls = {_CREATED_AT + timedelta(days=day) for day in days}
    while now <= _CREATED_AT + timedelta(days=DAYS):
        day = (now - _CREATED_AT) / timedelta(days=1)
        yield day, compute_heat(state, now, DEFAULTS)
        if now in recalls:
            use = apply_recalls(use, [now], DEFAULTS)
            state = state._replace(strength=use.strength, accessed_at=use.accessed_at)
            yield day, compute_heat(state, now, DEFAULTS)
        now += _STEP


def draw() -> str:
    """The plot."""
    title = "Heat over 14 days of a chain of importance 0.8 and density 1"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 780 {_TOP + _HEIGHT + 50}" '
        'font-family="system-ui, sans-serif" font-size="12" fill="#374151">',
        f"<title>{title}</title>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="{_LEFT_MARGIN}" y="26" font-size="15" fill="#111827">{title}</text>',
        *_axes(),
        *(_line(pattern) for pattern in PATTERNS),
        *_legend(),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _x(day: float) -> float:
    return round(_LEFT_MARGIN + _WIDTH * day / DAYS, 1)


def _y(warmth: float) -> float:
    return round(_TOP + _HEIGHT * (1 - warmth), 1)


def _axes() -> Iterator[str]:
    right, bottom = _x(DAYS), _y(0)
    for tenth in range(0, 11, 2):
        y = _y(tenth / 10)
        yield f'<path d="M{_LEFT_MARGIN} {y}H{right}" stroke="#e5e7eb"/>'
        yield f'<text x="{_LEFT_MARGIN - 8}" y="{y + 4}" text-anchor="end">{tenth / 10}</text>'
    for day in range(0, DAYS + 1, 2):
        yield f'<text x="{_x(day)}" y="{bottom + 18}" text-anchor="middle">{day}</text>'
    yield f'<text x="{_x(DAYS / 2)}" y="{bottom + 38}" text-anchor="middle">days</text>'
    for label, warmth in THRESHOLDS:
        y = _y(warmth)
        yield f'<path d="M{_LEFT_MARGIN} {y}H{right}" stroke="#9ca3af" stroke-dasharray="1 4"/>'
        yield f'<text x="{right + 8}" y="{y + 4}" fill="#6b7280">{label}</text>'


def _line(pattern: Pattern) -> str:
    points = " ".join(f"{_x(day)},{_y(warmth)}" for day, warmth in course(pattern.days))
    return (
        f'<polyline points="{points}" fill="none" stroke="{pattern.colour}" stroke-width="1.8" '
        f'stroke-dasharray="{pattern.dash}"/>'
    )


def _legend() -> Iterator[str]:
    for place, pattern in enumerate(PATTERNS):
        x, y = _LEFT_MARGIN + place * 150, 40
        yield (
            f'<path d="M{x} {y}h24" stroke="{pattern.colour}" stroke-width="2.5" '
            f'stroke-dasharray="{pattern.dash}"/>'
            f'<text x="{x + 30}" y="{y + 4}">{pattern.label}</text>'
        )


if __name__ == "__main__":
    FILE.write_text(draw(), "utf-8")
