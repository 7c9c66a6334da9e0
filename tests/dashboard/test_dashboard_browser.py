"""The pages in a real browser on the real service: they load, stay on their host, and follow the run."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.browser
SIZES = {"wide": {"width": 1440, "height": 900}, "narrow": {"width": 375, "height": 812}}
PATIENCE = 20_000
Open = Callable[..., Any]


@pytest.fixture
def open_page(browser: Any, service: str) -> Iterator[Open]:
    """Opens a page; at the end it must have had no console error and asked no other host."""
    contexts: dict[tuple[str, str], Any] = {}
    troubles: list[str] = []
    hosts: set[str] = set()

    def opened(path: str, *, size: str = "wide", scheme: str = "light") -> Any:
        if (size, scheme) not in contexts:
            contexts[size, scheme] = browser.new_context(viewport=SIZES[size], color_scheme=scheme)
        context = contexts[size, scheme]
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.on("console", lambda m: troubles.append(m.text) if m.type in {"error", "warning"} else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: hosts.add(httpx.URL(request.url).host or "data"))
        page.goto(service + path)
        return page

    yield opened
    for context in contexts.values():
        context.close()
    assert troubles == []
    assert hosts <= {"127.0.0.1", "data"}


def send(service: str, run: str, samples: int, reward: float = 0.42) -> None:
    """One more report, as a trainer sends it."""
    report = {"step": samples // 64, "samples": samples, "rollout_batch": 64, "learning_rate": 2e-4,
              "reward": reward, "updates": 16, "epochs": 2, "time": time.time(), "entropy": 0.7}  # fmt: skip
    httpx.post(f"{service}api/v1/runs/{run}/steps", json={"reports": [report]}).raise_for_status()


def overflow(page: Any) -> int:
    """Pixels by which the page is wider than its window, once the charts have taken their new size."""
    wide = 0
    for _ in range(50):
        wide = page.evaluate(
            "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        if wide == 0:
            break
        page.wait_for_timeout(100)
    return int(wide)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_renders_wide_and_narrow(open_page: Open, scheme: str) -> None:
    for path in ("", "families", "runs/guided-3", "runs/unguided-3"):
        page = open_page(path, scheme=scheme)
        page.locator("h1").wait_for()
        if path.startswith("runs/"):
            for figure in ("reward", "drift", "forecasts", "metric:entropy"):
                page.locator(f'[data-figure="{figure}"].drawn .main-svg').first.wait_for()
            assert page.locator(".dial").count() == 2
            axis = page.locator('[data-figure="drift"] .ytitle').first.evaluate(
                "e => getComputedStyle(e).fill"
            )
            assert axis == ("rgb(152, 161, 178)" if scheme == "dark" else "rgb(102, 112, 128)")
        ink = page.evaluate("() => getComputedStyle(document.body).color")
        assert (ink == "rgb(233, 230, 223)") is (scheme == "dark")
        assert overflow(page) == 0, path
        page.set_viewport_size(SIZES["narrow"])
        assert overflow(page) == 0, f"{path} narrow"
        page.close()


def test_a_report_appears_by_itself_and_zoom_stays(open_page: Open, service: str) -> None:
    send(service, "live-1", 64)
    send(service, "live-1", 128)
    page = open_page("runs/live-1")
    page.locator('[data-figure="metric:entropy"].drawn').wait_for()
    page.locator('[data-pulse][data-state="live"]').wait_for()
    reward = page.locator('[data-figure="reward"]')
    reward.evaluate("plot => Plotly.relayout(plot, {'xaxis.range': [10, 100]})")
    assert page.locator('[data-figure="metric:entropy"]').evaluate("p => p.layout.xaxis.range") == [10, 100]
    send(service, "live-1", 4_224)
    page.get_by_text("4,224", exact=True).first.wait_for()
    assert reward.evaluate("plot => plot.data[0].x.at(-1)") == 4_224
    assert reward.evaluate("plot => plot.layout.xaxis.range") == [10, 100]
    assert page.locator('[data-figure="metric:entropy"]').evaluate("p => p.layout.xaxis.range") == [10, 100]
    reward.evaluate("plot => plot.emit('plotly_doubleclick')")
    assert reward.evaluate("plot => plot.layout.xaxis.range[1]") > 4_224


def test_the_first_report_wakes_an_empty_page(open_page: Open, service: str) -> None:
    httpx.put(f"{service}api/v1/runs/new-1", json={}).raise_for_status()
    page = open_page("runs/new-1")
    page.locator('[data-figure="reward"].vacant').wait_for()
    send(service, "new-1", 64)
    page.locator('[data-figure="reward"].drawn').wait_for()
    page.locator('[data-figure="metric:entropy"].drawn').wait_for()


def test_the_list_follows_new_runs(open_page: Open, service: str) -> None:
    page = open_page("")
    page.locator('tr[data-run="healthy-run"]').wait_for()
    send(service, "newcomer", 64)
    page.locator('tr[data-run="newcomer"]').wait_for()
    page.get_by_role("link", name="newcomer").click()
    page.wait_for_url("**/runs/newcomer")


def test_the_theme_is_kept(open_page: Open) -> None:
    page = open_page("runs/guided-3", scheme="light")
    page.locator('[data-figure="drift"].drawn').wait_for()
    assert page.locator('[data-figure="drift"] .modebar-btn').count() == 4  # none that sends data away
    switch = page.locator("[data-theme-switch]")
    switch.click()
    switch.click()
    assert page.evaluate("() => document.documentElement.dataset.theme") == "dark"
    page.locator('[data-figure="drift"] .ytitle[style*="rgb(152, 161, 178)"]').wait_for()
    page.reload()
    assert page.evaluate("() => document.documentElement.dataset.theme") == "dark"
    assert page.locator("[data-theme-word]").inner_text() == "dark"


def test_the_keyboard_reaches_the_first_run(open_page: Open) -> None:
    page = open_page("")
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    first = page.locator("tr[data-run]").first.get_attribute("data-run")
    assert page.evaluate("() => document.activeElement.textContent") == first


def test_the_page_says_when_the_service_is_gone_and_finds_it_again(
    open_page: Open, browser: Any, tmp_path: Path
) -> None:
    app = pytest.importorskip("twoclocks.app")
    from twoclocks.config import Settings

    url = f"sqlite:///{tmp_path / 'twoclocks.sqlite3'}"
    with app.running(Settings(database_url=url, port=0, _env_file=None)) as address:
        port = httpx.URL(address).port
        send(f"{address}/", "survivor", 64)
        context = browser.new_context()
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.goto(f"{address}/runs/survivor")
        page.locator('[data-pulse][data-state="live"]').wait_for()
    page.get_by_text("The service does not answer").wait_for()
    with app.running(Settings(database_url=url, port=port, _env_file=None)) as address:
        page.locator('[data-pulse][data-state="live"]').wait_for()
        page.locator("[data-banner]").wait_for(state="hidden")
        send(f"{address}/", "survivor", 3_264)
        page.get_by_text("3,264", exact=True).first.wait_for()
        context.close()
