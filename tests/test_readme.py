"""The README tells the truth: every setting, metric and route is in its table, and nothing else is."""

import re
import time
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

import twoclocks_dashboard
from twoclocks.app import create_app, running
from twoclocks.config import ENV_PREFIX, Settings
from twoclocks.wire import CANONICAL_METRICS, RunState, RunSummary

JSON = {"content-type": "application/json"}
ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def first_column(heading: str) -> set[str]:
    """The code spans in the first column of the table under a heading."""
    section = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", README, re.S | re.M)
    assert section, f"the README has no section {heading!r}"
    rows = re.findall(r"^\| ([^|]*)\|", section.group(1), re.M)
    return {span for row in rows[1:] for span in re.findall(r"`([^`]+)`", row)}


def test_every_setting_is_in_the_table_and_in_the_example() -> None:
    settings = {f"{ENV_PREFIX}{name.upper()}" for name in Settings.model_fields}
    assert first_column("Settings of the service") == settings
    example = (ROOT / ".env.example").read_text()
    assert settings <= set(re.findall(rf"{ENV_PREFIX}\w+", example))


def test_every_canonical_metric_is_in_the_table() -> None:
    assert first_column("Metrics of a report") == set(CANONICAL_METRICS)


@pytest.fixture
def app(tmp_path: Path):  # type: ignore[no-untyped-def]
    return create_app(Settings(database_url=f"sqlite:///{tmp_path / 'twoclocks.sqlite3'}", _env_file=None))


def test_every_prometheus_metric_is_in_the_table(app) -> None:  # type: ignore[no-untyped-def]
    with TestClient(app) as client:
        text = client.get("/metrics").text
    exported = [m for m in text_string_to_metric_families(text) if not m.name.endswith("_created")]
    families = {f"{m.name}_total" if m.type == "counter" else m.name for m in exported}
    assert first_column("Prometheus") == families


def test_every_route_is_in_the_table(app) -> None:  # type: ignore[no-untyped-def]
    api = {f"{method.upper()} {path}" for path, item in app.openapi()["paths"].items() for method in item}
    pages = {f"GET {r.path}" for r in twoclocks_dashboard.router(app.state.store, time.time).routes}
    assert first_column("Routes") == api | pages | {"GET /docs"}


def test_every_local_link_and_image_exists() -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", README):
        assert (ROOT / target).exists(), target


def test_every_make_target_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"`make ([a-z-]+)", README))
    assert named, "the README names no command"
    assert named <= targets


def test_the_client_example_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOCLOCKS_SPOOL_DIR", str(tmp_path / "spool"))
    example = re.search(r"```python\n(.*?)```", README, re.S)
    assert example
    url = f"sqlite:///{tmp_path / 'twoclocks.sqlite3'}"
    with running(Settings(database_url=url, port=0, _env_file=None)) as address:
        code = example.group(1).replace("http://127.0.0.1:8900", address)
        assert address in code
        exec(compile(code, "README.md", "exec"), {"steps": 3, "reward": 0.5, "entropy": 1.0})
        run = RunSummary.model_validate_json(httpx.get(f"{address}/api/v1/runs/my-run").content)
    assert (run.step, run.samples, run.reports, run.state) == (3, 1_536, 3, RunState.FINISHED)
    assert run.spec.budget_samples == 2_000_000


def test_the_curl_example_is_accepted(app) -> None:  # type: ignore[no-untyped-def]
    calls = re.findall(r"curl -X (\w+) +localhost:8900(\S+)[^']*'[^']*'[^']*'(.*?)'$", README, re.M)
    assert len(calls) == 2
    with TestClient(app) as client:
        for method, path, body in calls:
            assert client.request(method, path, content=body, headers=JSON).status_code == 200, body
        assert client.get("/api/v1/runs/my-run").json()["samples"] == 64
