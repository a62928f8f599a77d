"""Promise: a tenant at fifty times its share at most doubles another's 95th percentile, because
what it is refused is cheap and what it is granted is bounded."""

import math
import multiprocessing
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from strandline.db.database import Caller
from strandline.tenants import store_quotas
from tests.prove.noisy_tenant import NoiseResult, make_noise, send_request
from tests.support import Gateway, ScratchDatabase

NOISY, QUIET = "noisy", "quiet"
SHARE, BURST_SECONDS, TIMES = 600, 10, 50
"""The noisy tenant's requests a minute, how many seconds' worth it may use at once, and by how much
it passes that."""
SLICE = SHARE // 60
"""What each of the two functions may hold from the round before."""
RATE = 20
"""What the quiet tenant asks in a second."""


@pytest.fixture
def elsewhere(gateway: Gateway) -> Iterator[ProcessPoolExecutor]:
    """A process of the noisy tenant's own: in AWS its requests have instances of their own, and
    share nothing with the others' but the database."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield pool


def quiet(gateway: Gateway, key: str, seconds: float) -> float:
    """The 95th percentile of its requests at its own pace, in milliseconds."""
    durations: list[float] = []
    began = time.monotonic()
    for n in range(int(seconds * RATE)):
        time.sleep(max(0.0, began + n / RATE - time.monotonic()))
        start = time.perf_counter()
        assert send_request(gateway, key, n) in (200, 201)
        durations.append((time.perf_counter() - start) * 1000)
    return sorted(durations)[math.ceil(len(durations) * 0.95) - 1]


def bound(noise: NoiseResult) -> float:
    """What its limit lets the noisy tenant have at most, in that time."""
    return SHARE / 60 * (noise.seconds + BURST_SECONDS) + 2 * SLICE


class Sides:
    """Both tenants."""

    def __init__(
        self, gateway: Gateway, base: ScratchDatabase, elsewhere: ProcessPoolExecutor, limit: int
    ) -> None:
        self._gateway, self._base, self._elsewhere = gateway, base, elsewhere
        self._noisy, self._quiet = gateway.key(NOISY), gateway.key(QUIET)
        access = gateway.database.connect_as(Caller.background(NOISY))
        with access.transaction():
            store_quotas.set_quota_limits(access, {"requests_per_minute": limit})
        self._noise(1, 0.1)  # what is done once, on both sides
        quiet(gateway, self._quiet, 0.5)

    def _noise(self, a_second: float, seconds: float) -> NoiseResult:
        return self._elsewhere.submit(
            make_noise, self._base.url, self._noisy, a_second, seconds
        ).result()

    def compare(self, seconds: float) -> tuple[float, float, NoiseResult]:
        """The quiet tenant's 95th percentile alone, and beside the noise; and what that got."""
        alone = quiet(self._gateway, self._quiet, seconds)
        under_way = self._elsewhere.submit(
            make_noise, self._base.url, self._noisy, TIMES * SHARE / 60, seconds
        )
        return alone, quiet(self._gateway, self._quiet, seconds), under_way.result()


@pytest.mark.proof
def test_noisy_tenant_does_not_slow_neighbour(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    elsewhere: ProcessPoolExecutor,
    request: pytest.FixtureRequest,
) -> None:
    """What holds whatever the machine: the noise is granted its share and its burst, and what it is
    refused asks for a connection once a second in each of the two functions, to ask again."""
    full = bool(request.config.getoption("--full"))
    sides, ratios = Sides(gateway, scratch_db, elsewhere, SHARE), list[float]()
    for _ in range(9 if full else 3):
        alone, beside, noise = sides.compare(10 if full else 2)
        ratios.append(beside / alone)
        print(
            f"\np95 alone {alone:.1f} ms, beside "
            f"{noise.count_by_status.total() / noise.seconds:.0f}"
            f" requests/s {beside:.1f} ms: {ratios[-1]:.2f} times; granted {noise.served}, refused"
            f" {noise.count_by_status[429]}, connections for those {noise.needless_connections}"
        )
        assert set(noise.count_by_status) <= {200, 201, 429}
        assert noise.served <= bound(noise)
        assert noise.count_by_status[429] > 0
        assert noise.needless_connections <= 2 * (noise.seconds + 1)
    print(f"\nmedian of {len(ratios)} rounds: {statistics.median(ratios):.2f} times")
    if full:
        assert statistics.median(ratios) <= 2


@pytest.mark.proof
def test_noisy_tenant_is_unbounded_without_limit(
    gateway: Gateway, scratch_db: ScratchDatabase, elsewhere: ProcessPoolExecutor
) -> None:
    """What the proof above rests on can be missing, and is seen then."""
    alone, beside, noise = Sides(gateway, scratch_db, elsewhere, 10**9).compare(2)
    print(
        f"\nwithout a limit: p95 {alone:.1f} ms, beside it {beside:.1f} ms;"
        f" granted {noise.served}, where its share were {bound(noise):.0f}"
    )
    assert set(noise.count_by_status) == {200, 201}
    assert noise.served > bound(noise)
