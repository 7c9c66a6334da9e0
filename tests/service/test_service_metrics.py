"""Prometheus: names, labels, what is absent, and the format as two independent parsers read it."""

import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from twoclocks.app import create_app
from twoclocks.config import Settings
from twoclocks.store import Store
from twoclocks.wire import Finish, RunSpec, StepBatch, StepReport

Report = Callable[..., StepReport]
Batch = Callable[..., StepBatch]
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
WATCHED = RunSpec(window_samples=256, family="f", project="p", budget_samples=20_000, target_reward=0.9)


def scrape(api: TestClient) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(api.get("/metrics").text):
        for sample in family.samples:
            found[(sample.name, tuple(sorted(sample.labels.items())))] = sample.value
    return found


def of_run(samples: Samples, run: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    mine: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for (name, labels), value in samples.items():
        if ("run", run) in labels:
            rest = tuple(pair for pair in labels if pair[0] not in {"run", "project"})
            mine.setdefault(name, {})[rest] = value
    return mine


@pytest.fixture
def family(store: Store, collapsing: Callable[..., list[StepReport]], batch: Batch) -> Store:
    """Four collapsed runs that ended, and one that is forecast."""
    for i in range(4):
        store.put_run(f"past-{i}", WATCHED, 1.0)
        store.ingest(f"past-{i}", batch(*collapsing(120, at=56 + 4 * i, seed=i)), 1.0)
        store.finish(f"past-{i}", Finish(), 1.0)
    store.put_run("live", WATCHED, 900.0)
    store.ingest("live", batch(*collapsing(30, at=999, seed=9)), 990.0)
    return store


def test_a_forecast_run_is_exported_whole(family: Store, api: TestClient) -> None:
    mine = of_run(scrape(api), "live")
    forecast = family.clocks("live").failure
    assert forecast is not None
    assert forecast.status == "forecast"
    assert forecast.stay is not None
    assert mine["twoclocks_run_samples_total"] == {(): 30 * 64}
    assert mine["twoclocks_run_drift_used_ratio"] == {(): forecast.drift_used_ratio}
    assert mine["twoclocks_run_collapse_remaining_samples"] == {
        (("quantile", q),): forecast.stay.quantiles[q] for q in ("0.05", "0.5", "0.95")
    }
    assert mine["twoclocks_run_collapse_probability"] == {
        (("horizon", "budget"),): forecast.collapse_probability_budget,
        (("horizon", "next"),): forecast.collapse_probability_next,
    }
    assert mine["twoclocks_run_last_report_timestamp_seconds"] == {(): 990.0}
    assert mine["twoclocks_run_collapsed"] == {(): 0.0}
    assert mine["twoclocks_run_directive_pending"].keys() == {()}
    progress = family.clocks("live").progress
    assert progress is not None
    assert mine["twoclocks_run_reward"] == {(): progress.reward}


def test_ended_runs_are_not_exported(family: Store, api: TestClient) -> None:
    assert family.run("past-0", 1.0).state == "finished"
    assert of_run(scrape(api), "past-0") == {}


def test_what_is_not_known_is_absent(store: Store, report: Report, batch: Batch, api: TestClient) -> None:
    store.put_run("silent", RunSpec(), 990.0)
    assert of_run(scrape(api), "silent").keys() == {
        "twoclocks_run_samples_total",
        "twoclocks_run_directive_pending",
        "twoclocks_run_collapsed",
    }
    store.ingest("silent", batch(report(0)), 990.0)
    assert store.clocks("silent").failure is not None
    names = of_run(scrape(api), "silent").keys()
    assert not any("collapse_" in name or "drift" in name for name in names)  # uncalibrated: it may not page


def test_a_lost_run_is_still_exported(store: Store, api: TestClient, clock: Any) -> None:
    store.put_run("lost", RunSpec(heartbeat_seconds=1), 1.0)
    clock.now = 5_000.0
    assert store.run("lost", clock.now).state == "lost"
    assert of_run(scrape(api), "lost")


def test_a_collapsed_run_says_so(
    store: Store, collapsing: Callable[..., list[StepReport]], batch: Batch, api: TestClient
) -> None:
    store.put_run("a", WATCHED, 990.0)
    store.ingest("a", batch(*collapsing(120, at=60)), 990.0)
    mine = of_run(scrape(api), "a")
    assert mine["twoclocks_run_collapsed"] == {(): 1.0}
    assert "twoclocks_run_collapse_remaining_samples" not in mine


def test_run_labels_are_run_and_project_only(family: Store, api: TestClient) -> None:
    extra = {
        "twoclocks_run_collapse_remaining_samples": {"quantile"},
        "twoclocks_run_collapse_probability": {"horizon"},
    }
    for name, labels in scrape(api):
        if name.startswith("twoclocks_run_"):
            assert {key for key, _ in labels} == {"run", "project"} | extra.get(name, set())


def test_the_services_own_counters(api: TestClient) -> None:
    step = {"step": 0, "samples": 64, "rollout_batch": 64, "learning_rate": 1e-4, "reward": 0.5}
    for reward in (0.5, 0.5):
        api.post("/api/v1/runs/a/steps", json={"reports": [{**step, "reward": reward}]})
    api.post("/api/v1/runs/a/steps", json={"reports": [{**step, "reward": 0.1}, {**step, "step": 1}]})
    api.get("/api/v1/runs/x" + "y" * 40)
    api.get("/no/such/" + "z" * 40)
    found = scrape(api)
    for result, count in (("accepted", 2), ("duplicate", 1), ("refused", 1)):
        assert found[("twoclocks_ingest_reports_total", (("result", result),))] == count
    posted = (("method", "POST"), ("route", "/api/v1/runs/{run}/steps"), ("status", "200"))
    assert found[("twoclocks_http_requests_total", posted)] == 3
    assert not any("yyy" in str(labels) or "zzz" in str(labels) for _, labels in found)  # labels have an end


def test_openmetrics_where_the_scraper_asks_for_it(family: Store, api: TestClient) -> None:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse

    answer = api.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    names = {family.name for family in parse(answer.text)}
    assert "twoclocks_run_collapse_remaining_samples" in names


def test_two_apps_in_one_process_count_apart(settings: Settings) -> None:
    with TestClient(create_app(settings)) as one, TestClient(create_app(settings)) as two:
        one.get("/healthz")
        assert 'route="/healthz"' in one.get("/metrics").text
        assert 'route="/healthz"' not in two.get("/metrics").text


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_finds_nothing_to_say(family: Store, api: TestClient) -> None:
    checked = subprocess.run(
        ["promtool", "check", "metrics"],
        input=api.get("/metrics").content,
        capture_output=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")
