"""A cosine counts in deviations of what the question's cosines are in its view."""

import random
from statistics import fmean, pstdev

import pytest

from strandline.recall.cosine_scale import CosineDistribution, estimate_cosine_distribution

USUAL = CosineDistribution(0.1, 0.12)


def make_sample(count: int, mean: float = 0.8, deviation: float = 0.03) -> list[float]:
    chance = random.Random(count)
    return [chance.gauss(mean, deviation) for _ in range(count)]


def test_cosine_scale_counts_deviations_from_mean() -> None:
    assert CosineDistribution(0.8, 0.05).standardize(0.9) == pytest.approx(2.0)
    assert CosineDistribution(0.8, 0.05).standardize(0.8) == 0.0


def test_cosine_scale_is_own_from_thirty_events() -> None:
    for count in (30, 80):
        sample = make_sample(count)
        assert estimate_cosine_distribution(sample, USUAL) == pytest.approx(
            (fmean(sample), pstdev(sample))
        )


def test_cosine_scale_of_small_view_is_mixed() -> None:
    sample = make_sample(15)
    mean, deviation = estimate_cosine_distribution(sample, USUAL)
    assert mean == pytest.approx((fmean(sample) + USUAL.mean) / 2)
    assert deviation**2 == pytest.approx((pstdev(sample) ** 2 + USUAL.deviation**2) / 2)
    means = [
        estimate_cosine_distribution(make_sample(30)[:count], USUAL).mean
        for count in (2, 10, 20, 29)
    ]
    assert means == sorted(means)
    assert USUAL.mean < means[0] < 0.2 < 0.7 < means[-1]


@pytest.mark.parametrize("sample", [[], [0.4], [0.4] * 80, [0.4] * 79 + [0.4 + 1e-6]])
def test_cosine_scale_without_deviation_is_of_space(sample: list[float]) -> None:
    assert estimate_cosine_distribution(sample, USUAL) == USUAL


def test_cosine_scale_is_independent_of_embedding_space() -> None:
    """A space whose cosines are narrower and higher gives every event the same deviation."""
    sample = make_sample(50, 0.1, 0.12)
    narrow = [0.8 + 0.3 * cosine for cosine in sample]
    wide_scale, narrow_scale = (
        estimate_cosine_distribution(some, USUAL) for some in (sample, narrow)
    )
    for cosine, other in zip(sample, narrow, strict=True):
        assert wide_scale.standardize(cosine) == pytest.approx(narrow_scale.standardize(other))
