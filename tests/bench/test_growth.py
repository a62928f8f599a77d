"""The bench of growth is bounded in time and disk."""

from tests.bench.growth import server_settings, what_does_not_fit

GB = 10**9


def test_bench_growth_leaves_out_sizes_that_do_not_fit() -> None:
    assert what_does_not_fit(200_000, 600, 100 * GB) is None
    assert "600 s are left" in (what_does_not_fit(2_000_000, 600, 100 * GB) or "")
    assert "bytes of disk" in (what_does_not_fit(2_000_000, 6000, 10 * GB) or "")


def test_bench_growth_database_fits_server_memory() -> None:
    assert server_settings(2_000) == {"shared_buffers": "1GB"}
    assert server_settings(2_000_000) == {"shared_buffers": "8GB"}
