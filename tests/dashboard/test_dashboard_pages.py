import gzip
import json
import math
import re
from typing import Any
from urllib.parse import urljoin

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from twoclocks.wire import (
    Ack,
    AckState,
    DirectiveKind,
    DirectiveRecord,
    Family,
    FamilyMember,
    ForecastStatus,
    RunConfig,
    RunSpec,
    RunState,
)
from twoclocks_dashboard import assets, router
from twoclocks_dashboard.strip import strip

HOSTILE = "<script>alert('boo')</script>\"'&"
ADDRESS = re.compile(r'(?:href|src|data-figures|data-events|data-list)="([^"#]*)"')


def fill(shelf: Any, fake: Any) -> None:
    made = fake.forecast()
    run = fake.summary("run-1", failure=made, progress=fake.learning())
    columns = fake.steps("run-1", [0.1, math.nan, 0.3], metrics={"entropy": [1.0, 0.9, math.nan]})
    shelf.add(run, columns, [fake.forecast(samples=1_000), made])
    shelf.add(
        fake.summary(
            "run-2",
            reports=0,
            samples=0,
            step=None,
            rollout_batch=None,
            learning_rate=None,
            last_report_at=None,
        )
    )


def test_the_empty_list_tells_a_newcomer_what_to_do(pages: TestClient) -> None:
    html = pages.get("/").text
    assert 'Monitor("http://testserver",' in html
    assert "http://testserver/api/v1/runs/my-run/steps" in html
    assert "make demo" in html


def test_the_list_is_sorted_by_urgency(pages: TestClient, shelf: Any, fake: Any) -> None:
    shelf.add(fake.summary("calm", failure=fake.forecast(collapse_probability_budget=0.01)))
    shelf.add(fake.summary("done", state=RunState.FINISHED, ended_at=fake.NOW))
    shelf.add(fake.summary("dying", failure=fake.forecast(collapse_probability_next=0.9)))
    html = pages.get("/").text
    assert re.findall(r'data-run="([^"]+)"', html) == ["dying", "calm", "done"]
    assert "3,000" in html
    assert "1,000 to 7,000" in html


def test_what_is_missing_is_shown_as_missing(pages: TestClient, shelf: Any, fake: Any) -> None:
    fill(shelf, fake)
    html = pages.get("/runs/run-2").text
    assert "No report has arrived yet." in html
    assert "Not given: rollout batch, learning rate, step." in html
    assert "not known" in html
    assert ">0.0" not in html


def test_nothing_hostile_reaches_a_page_unescaped(pages: TestClient, shelf: Any, fake: Any) -> None:
    spec = RunSpec(config=RunConfig(model=HOSTILE, **{HOSTILE: HOSTILE}))
    record = DirectiveRecord(
        generation=1, kind=DirectiveKind.STOP, reason=HOSTILE, evidence={HOSTILE: [HOSTILE]},
        acks=[Ack(state=AckState.REJECTED, reason=HOSTILE)],
    )  # fmt: skip
    made = fake.forecast(status=ForecastStatus.UNCALIBRATED, reason=HOSTILE)
    run = fake.summary(
        spec=spec, failure=made, family=HOSTILE, project=HOSTILE, notices=[HOSTILE], end_reason=HOSTILE,
        directive=record, directive_pending=True,
    )  # fmt: skip
    shelf.add(run, fake.steps(run.run, [0.1]), [made], [record])
    member = FamilyMember(run=HOSTILE, collapsed=True, cause=HOSTILE, samples=9, rollout_batch=8,
                          learning_rate=1e-3, log_eta0=-8.0, drift={"rule:2": 1e-5})  # fmt: skip
    shelf.known = [Family(family=HOSTILE, status=ForecastStatus.UNCALIBRATED, members=[member])]
    for path in ("/", "/fragments/runs", "/runs/run-1", "/families"):
        html = pages.get(path).text
        assert "&lt;script&gt;alert" in html, path
        assert "<script>alert" not in html, path
    parts = pages.get("/runs/run-1/figures").json()["parts"]
    assert all("<script" not in part for part in parts.values())


def test_an_unknown_run_is_a_page_for_a_browser_and_the_services_error_for_others(
    pages: TestClient, fake: Any
) -> None:
    answer = pages.get("/runs/nope")
    assert answer.status_code == 404
    assert "no run &#39;nope&#39;" in answer.text
    assert 'href="../"' in answer.text
    with pytest.raises(fake.NoSuchRunError):
        pages.get("/runs/nope", headers={"accept": "application/json"})


def test_every_address_works_behind_a_path_prefix(shelf: Any, fake: Any) -> None:
    fill(shelf, fake)
    inner, outer = FastAPI(), FastAPI()
    inner.include_router(router(shelf, lambda: fake.NOW))
    outer.mount("/deep/er", inner)
    with TestClient(outer) as client:
        found = set()
        for page in ("/deep/er/", "/deep/er/runs/run-1", "/deep/er/families", "/deep/er/fragments/runs"):
            answer = client.get(page)
            assert answer.status_code == 200
            base = "/deep/er/" if "fragments" in page else page  # the fragment lands on the list's page
            found |= {urljoin(base, address) for address in ADDRESS.findall(answer.text)}
        fault = client.get("/deep/er/runs/nope", headers={"accept": "text/html"})
        found |= {urljoin("/deep/er/runs/nope", address) for address in ADDRESS.findall(fault.text)}
        assert len(found) > 10
        assert all(address.startswith("/deep/er/") for address in found), found
        for address in found:
            if not address.startswith("/deep/er/api/"):
                assert client.get(address).status_code == 200, address


def test_pages_carry_no_inline_script_or_style(pages: TestClient, shelf: Any, fake: Any) -> None:
    fill(shelf, fake)
    for path in ("/", "/runs/run-1", "/families"):
        answer = pages.get(path)
        assert "script-src 'self';" in answer.headers["content-security-policy"]
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert re.search(r"<script(?![^>]*\bsrc=)", answer.text) is None
        assert re.search(r"<[a-z][^>]*\s(?:style|on\w+)=", answer.text) is None
        assert not re.search(r'(?:src|href)="(?:https?:)?//', answer.text)


def test_figures_are_json_with_nan_as_marks_and_come_once_per_revision(
    pages: TestClient, shelf: Any, fake: Any
) -> None:
    fill(shelf, fake)
    answer = pages.get("/runs/run-1/figures?theme=dark")
    document = json.loads(answer.text, parse_constant=lambda word: pytest.fail(f"{word} in the JSON"))
    assert document["revision"] == 7
    assert {"reward", "drift", "forecasts", "metric:entropy"} == set(document["figures"])
    assert document["metrics"][0]["help"].startswith("mean entropy")
    assert set(document["parts"]) == {"verdict", "clocks", "log", "facts"}
    assert max(n for n in shelf.asked if n) <= 1_500
    known = {"if-none-match": answer.headers["etag"]}
    assert pages.get("/runs/run-1/figures?theme=dark", headers=known).status_code == 304
    assert pages.get("/runs/run-1/figures?theme=light", headers=known).status_code == 200
    shelf.summaries["run-1"] = shelf.summaries["run-1"].model_copy(update={"revision": 8})
    assert pages.get("/runs/run-1/figures?theme=dark", headers=known).status_code == 200


def test_the_fragment_is_not_sent_twice(pages: TestClient, shelf: Any, fake: Any) -> None:
    fill(shelf, fake)
    first = pages.get("/fragments/runs")
    assert "<html" not in first.text
    assert pages.get("/fragments/runs", headers={"if-none-match": first.headers["etag"]}).status_code == 304


def test_a_sparkline_is_read_once_per_revision(pages: TestClient, shelf: Any, fake: Any) -> None:
    fill(shelf, fake)
    pages.get("/fragments/runs")
    asked = len(shelf.asked)
    pages.get("/fragments/runs")
    assert len(shelf.asked) == asked
    assert max(n for n in shelf.asked if n) <= 60


def test_plotly_comes_compressed_and_may_be_kept_for_ever(pages: TestClient) -> None:
    version = assets.asset(assets.PLOTLY).version
    answer = pages.get(f"/assets/plotly.min.js?v={version}", headers={"accept-encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert "immutable" in answer.headers["cache-control"]
    assert int(answer.headers["content-length"]) < 1_700_000
    plain = pages.get("/assets/plotly.min.js", headers={"accept-encoding": "identity"})
    assert plain.headers["cache-control"] == "no-cache"
    assert gzip.decompress(assets.asset(assets.PLOTLY).packed) == plain.content
    again = pages.get("/assets/plotly.min.js", headers={"if-none-match": plain.headers["etag"]})
    assert again.status_code == 304


@pytest.mark.parametrize("name", ["nope.js", "..%2Fpages.py", "style.css%00"])
def test_no_other_file_is_served(pages: TestClient, name: str) -> None:
    assert pages.get(f"/assets/{name}").status_code == 404


def test_a_page_without_plotly_is_light(pages: TestClient, shelf: Any, fake: Any) -> None:
    fill(shelf, fake)
    own = sum(len(assets.asset(name).plain) for name in assets.OWN)
    assert own + len(pages.get("/runs/run-1").content) < 150_000


def test_a_family_lies_on_one_axis_of_equivalent_samples() -> None:
    members = [
        FamilyMember(run=f"m{i}", collapsed=i < 2, samples=samples, rollout_batch=64, learning_rate=2e-4,
                     log_eta0=math.log(1e-5), drift={"rule:2": 2 * samples * 1e-10})
        for i, samples in enumerate((4_000, 8_000, 9_000))
    ]  # fmt: skip
    threshold = {"0.1": 6_000.0, "0.5": 16_000.0, "0.9": 30_000.0}
    found = strip(Family(family="f", status=ForecastStatus.FORECAST, threshold=threshold, members=members))
    assert found is not None
    assert found.median == pytest.approx(found.members[1].place, abs=1e-3)  # 2 epochs x 8,000 samples
    assert [m.collapsed for m in found.members] == [True, True, False]
    assert strip(Family(family="f", status=ForecastStatus.NONE)) is None
