"""The README tells the truth: every setting, metric and route is in its table, and nothing else is."""

import re
import time
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

import twoclocks_dashboard
from twoclocks.app import create_app
from twoclocks.config import ENV_PREFIX, Settings
from twoclocks.wire import CANONICAL_METRICS

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
