"""What docs/cost.md says it costs is what the script gives."""

from pathlib import Path

import pytest

from infra import cost_tables, prices
from infra.cost_tables import DOCUMENT
from infra.database_figures import read_database_figures
from infra.load_settings import build_valid_settings
from infra.price_list import AGENTCORE, BEDROCK_EMBEDDINGS, PRICES, UnitPrice
from infra.prices import IDLE, NETWORKS, CostItem, sum_costs
from strandline.embeddings.bedrock_models import FAMILIES
from strandline.function_specs import JOBS
from tests.infra.alarms import alarms, stats
from tests.infra.stacks import CONTEXT, VARIANTS, Template, properties, template


def test_prices_tables_in_docs_are_current() -> None:
    text = DOCUMENT.read_text()
    assert cost_tables.replace_tables_in_document(text) == text, "make prices"
    with pytest.raises(ValueError, match="has no"):
        cost_tables.replace_tables_in_document(text.replace(cost_tables.END, ""))


def test_prices_in_readme_match_table(repository: Path) -> None:
    readme = (repository / "README.md").read_text()
    agentcore = AGENTCORE["event"].usd * prices.MILLION
    whole, marginal = sum_costs(prices.MONTH_OF_A_MILLION), sum_costs(prices.EVENTS)
    assert f"A million events over a month cost about {whole:.0f} USD" in readme
    assert f"{marginal:.2f} on top of a stage that is awake" in readme
    assert f"makes that {agentcore:.0f}." in readme


def test_prices_change_changes_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    dearer = {**PRICES, "endpoint": UnitPrice(0.02, "hour", "planted")}
    monkeypatch.setattr(prices, "PRICES", dearer)
    text = DOCUMENT.read_text()
    assert cost_tables.replace_tables_in_document(text) != text


def test_prices_idle_matches_hand_calculation() -> None:
    """Without a network: 10 GB at 0.10, 3.1 unit-hours at 0.12, 3 secrets at 0.40, 35 alarms at
    0.10, a dashboard, 25 metrics for 31 of 730 hours, and 1,314,000 calls of SQS at 0.40 a
    million."""
    expected = 1.00 + 0.372 + 1.20 + 3.50 + 3.00 + 0.3185 + 0.5256
    assert sum_costs(IDLE) == pytest.approx(expected, abs=1e-3)
    one, two, nat, existing = (sum_costs(items) for items in NETWORKS.values())
    assert (one, two) == (pytest.approx(14.60), pytest.approx(29.20))
    assert (nat, existing) == (pytest.approx(36.50), 0)


def test_prices_prod_matches_shipped_settings() -> None:
    prod = build_valid_settings(CONTEXT["stages"]["prod"])
    assert prod.min_capacity * (1 + prod.readers) == prices.PROD_UNITS
    assert (prod.network, prod.endpoint_zones, prod.key) == ("endpoints", 2, False)
    assert prod.min_capacity >= 2, "what AWS recommends with Performance Insights"
    assert sum_costs(prices.PROD) == pytest.approx(350.40)


def test_prices_firewall_counts_rules_of_template(repository: Path) -> None:
    """5 USD and 1 for each rule; 0.60 for each of 9.677 million requests a day, of which one
    address gets half to the functions."""
    assert build_valid_settings(CONTEXT["stages"]["prod"]).firewall is True
    acl = template(**VARIANTS["mutual TLS"])
    (props,) = properties(acl, "WAFv2::WebACL").values()
    assert sum_costs(prices.FIREWALL) == pytest.approx(5 + len(props["Rules"]))
    open_stage, behind = (sum_costs(items) for items in prices.STRANGERS.values())
    assert behind == pytest.approx(open_stage / 2 + 9.6768 * 0.60)


def test_prices_hourly_talk_matches_hand_calculation() -> None:
    """Awake from five minutes before its end to 16 after it, and for six minutes at 30 and 45."""
    assert prices.count_awake_minutes_of_hour() == 5 + 6 + 6 + 6 + 6
    (item,) = prices.HOURLY_TALKS
    assert item.total_usd == pytest.approx(730 * 29 / 60 * 0.12)


def test_prices_cold_recall_pays_for_its_pages() -> None:
    cold, warm = sum_costs(prices.COLD_RECALLS), sum_costs(prices.LARGE_RECALLS)
    pages = prices.FIGURES.recall[prices.LARGE_VIEW].cold_pages
    assert cold - warm == pytest.approx((pages - 2) * 0.20)


def test_prices_refuse_figures_of_another_form(tmp_path: Path) -> None:
    path = tmp_path / "database_figures.json"
    path.write_text('{"recall": [{"in_view": 1}]}')
    with pytest.raises(ValueError, match="make bench NAME=database-cpu"):
        read_database_figures(path)


def test_prices_transitions_match_hand_calculation() -> None:
    """1,000 tenants are 20 items of 50: 6 + 40 transitions, at 25 a million. In 14,880 minutes the
    sweeper and the builder run 2,976 times, the archiver and the analytics 248, the promoter and
    the eraser 14,880."""
    assert prices.count_run_transitions(1) == 8
    assert prices.count_run_transitions(1000) == 46
    assert prices.RUNS.keys() == {job.name for job in JOBS}
    runs = 2 * 2976 + 2 * 248 + 2 * 14_880
    for tenants, transitions in ((1, 8), (1000, 46)):
        costs = sum_costs(prices.RUN_COSTS[tenants])
        assert costs == pytest.approx(runs * transitions * 25e-6)


def test_prices_cover_every_embedding_model_of_bedrock(repository: Path) -> None:
    """And docs/models.md has the same figures."""
    assert BEDROCK_EMBEDDINGS.keys() == FAMILIES.keys()
    document = (repository / "docs" / "models.md").read_text()
    rows = [line.split(" | ") for line in document.splitlines() if line.startswith("| `")]
    for model, price in BEDROCK_EMBEDDINGS.items():
        (row,) = (row for row in rows if f"`{model}`" in row[0])
        assert float(row[4].split(",")[0].rstrip(" |")) == pytest.approx(price.usd * 1e6), model
        assert f"by Bedrock's `{model}` | {price.usd * 100 * 1e6:.2f} |" in DOCUMENT.read_text()


def test_prices_count_endpoints_of_template() -> None:
    """Those of the network, and one for a model of Bedrock."""

    def count(stack: Template) -> int:
        endpoints = properties(stack, "EC2::VPCEndpoint").values()
        return sum(endpoint["VpcEndpointType"] == "Interface" for endpoint in endpoints)

    assert count(template()) == prices.ENDPOINTS
    assert count(template(**VARIANTS["bedrock"])) == prices.ENDPOINTS + 1
    assert sum_costs(prices.BEDROCK_ENDPOINT) == pytest.approx(7.30)


def test_prices_model_tokens_match_measured_calls(repository: Path) -> None:
    """103 tokens read and 6.6 written for an event, by Nova Lite: 6.18 and 1.58 a million."""
    chains = (repository / "docs" / "chains.md").read_text()
    assert "| tokens in for 1,000 events | 0 | 103,000" in chains
    assert "| calls for 1,000 events | 0 | 110:" in chains
    assert sum_costs(prices.FORMED_BY_BEDROCK) == pytest.approx(6.18 + 1.584)


def test_prices_have_unit_and_source() -> None:
    for price in [*PRICES.values(), *AGENTCORE.values()]:
        assert price.usd > 0
        assert price.unit
        assert price.source.startswith(("seen: ", "remembered", "quoted"))
    assert CostItem("acu", 2, "").total_usd == pytest.approx(0.24)


def test_prices_count_every_alarm() -> None:
    assert sum(len(stats(a)) for a in alarms().values()) == prices.ALARM_METRICS
