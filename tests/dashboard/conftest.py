"""The dashboard's fixtures: a store in memory, pretend runs, and a real service with a real browser on it."""

import importlib.util
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

HERE = Path(__file__).parent
CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def load(name: str) -> ModuleType:
    """A helper module that lies beside the tests (importlib mode puts no folder on the path)."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(scope="session")
def fake() -> ModuleType:
    return load("dashboard_fake")


@pytest.fixture(scope="session")
def samples() -> ModuleType:
    return load("dashboard_samples")


@pytest.fixture
def shelf(fake: ModuleType) -> Any:
    return fake.Shelf()


@pytest.fixture
def pages(shelf: Any, fake: ModuleType) -> Iterator[TestClient]:
    """The dashboard alone over the shelf, its clock standing at NOW."""
    from twoclocks_dashboard import router

    app = FastAPI()
    app.include_router(router(shelf, lambda: fake.NOW))
    with TestClient(app, headers={"accept": "text/html"}, raise_server_exceptions=True) as client:
        yield client


@pytest.fixture(scope="session")
def service(samples: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The real service on a free port with a few pretend runs in it; yields its address with a slash."""
    app = pytest.importorskip("twoclocks.app")
    from twoclocks.config import Settings
    from twoclocks.store import Store, migrate

    url = f"sqlite:///{tmp_path_factory.mktemp('dashboard') / 'twoclocks.sqlite3'}"
    migrate.upgrade(url)
    store = Store(url)
    samples.fill(store, time.time(), only=frozenset({"guided-3", "unguided-3", "healthy-run"}))
    store.close()
    with app.running(Settings(database_url=url, port=0, _env_file=None)) as address:
        yield f"{address}/"


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium; the test is skipped where there is none."""
    api = pytest.importorskip("playwright.sync_api")
    if not CHROMIUM.exists():
        pytest.skip("Chromium is not installed")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield opened
        opened.close()
