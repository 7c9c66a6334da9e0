"""The routes: what each answers, and the one shape of every error."""

import gzip
import json
import math
import re
import threading
from typing import Any

import pytest
from starlette.testclient import TestClient

from twoclocks.wire import (
    Clocks,
    Directive,
    DirectiveRecord,
    Family,
    Forecast,
    IngestReply,
    Problem,
    RunList,
    RunSummary,
    StepColumns,
)

JSON = {"Content-Type": "application/json"}
STEP = {"step": 0, "samples": 64, "rollout_batch": 64, "learning_rate": 1e-4, "reward": 0.5}
SCHEDULED = {"window_samples": 256, "schedule": [{"at_samples": 192, "rollout_batch": 256}]}


def steps(*which: int, **more: Any) -> dict[str, Any]:
    return {"reports": [{**STEP, "step": step, "samples": 64 * (step + 1), **more} for step in which]}


def test_the_whole_loop(api: TestClient) -> None:
    created = RunSummary.model_validate(api.put("/api/v1/runs/a", json=SCHEDULED).json())
    assert created.spec.schedule[0].rollout_batch == 256
    for step in range(20):
        reply = IngestReply.model_validate(api.post("/api/v1/runs/a/steps", json=steps(step)).json())
        if reply.directive.kind == "switch_batch":
            break
    directive = Directive.model_validate(api.get("/api/v1/runs/a/directive").json())
    assert directive == reply.directive
    acked = api.put(f"/api/v1/runs/a/directive/{directive.generation}/ack", json={"state": "received"})
    assert DirectiveRecord.model_validate(acked.json()).acks[0].state == "received"
    log = [DirectiveRecord.model_validate(item) for item in api.get("/api/v1/runs/a/directives").json()]
    assert log[-1].generation == directive.generation
    assert [Forecast.model_validate(item) for item in api.get("/api/v1/runs/a/forecasts").json()]
    assert Clocks.model_validate(api.get("/api/v1/runs/a/clocks").json()).step == step
    assert StepColumns.model_validate(api.get("/api/v1/runs/a/steps").json()).step == list(range(step + 1))
    ended = api.post("/api/v1/runs/a/finish", json={"state": "stopped", "reason": "enough"}).json()
    assert (ended["state"], ended["end_reason"]) == ("stopped", "enough")
    listed = RunList.model_validate(api.get("/api/v1/runs", params={"state": "stopped"}).json())
    assert [run.run for run in listed.runs] == ["a"]
    assert [Family.model_validate(item) for item in api.get("/api/v1/families").json()]


def test_nan_travels_both_ways_as_valid_json(api: TestClient) -> None:
    body = (
        '{"reports": [{"step": 0, "samples": 64, "rollout_batch": 64, "learning_rate": 1e-4, "reward": NaN,'
    )
    body += ' "kl": "-Infinity", "loss": Infinity, "entropy": null}]}'
    assert api.post("/api/v1/runs/a/steps", content=body, headers=JSON).json()["accepted"] == 1

    def refuse(literal: str) -> None:
        raise AssertionError(f"{literal} is not JSON")

    shown = json.loads(api.get("/api/v1/runs/a/steps").text, parse_constant=refuse)
    assert shown["metrics"] == {"reward": ["NaN"], "kl": ["-Infinity"], "loss": ["Infinity"]}
    back = StepColumns.model_validate(shown)
    assert math.isnan(back.metrics["reward"][0] or 0)
    json.loads(api.get("/api/v1/runs/a").text, parse_constant=refuse)


def test_csv_by_accept_and_by_query(api: TestClient) -> None:
    api.post("/api/v1/runs/a/steps", json=steps(0, 1))
    by_header = api.get("/api/v1/runs/a/steps", headers={"Accept": "text/csv"})
    by_query = api.get("/api/v1/runs/a/steps?format=csv")
    assert by_header.headers["content-type"].startswith("text/csv")
    assert by_header.text == by_query.text
    assert by_header.text.splitlines()[0] == "attempt,step,samples,rollout_batch,learning_rate,time,reward"
    assert len(by_header.text.splitlines()) == 3
    assert api.get("/api/v1/runs/a/steps?format=json", headers={"Accept": "text/csv"}).json()["total"] == 2


def test_a_range_of_steps(api: TestClient) -> None:
    api.post("/api/v1/runs/a/steps", json=steps(*range(10)))
    assert api.get("/api/v1/runs/a/steps?from=3&to=5").json()["step"] == [3, 4, 5]
    assert len(api.get("/api/v1/runs/a/steps?max_points=5").json()["step"]) <= 5


def test_a_conflict_shows_what_is_stored(api: TestClient) -> None:
    api.post("/api/v1/runs/a/steps", json=steps(0))
    refused = api.post("/api/v1/runs/a/steps", json=steps(0, reward=0.9))
    assert refused.status_code == 409
    assert refused.json()["refused"][0]["stored"]["reward"] == 0.5
    partly = api.post("/api/v1/runs/a/steps", json=steps(0, 1, reward=0.9))
    assert partly.status_code == 200
    assert (partly.json()["accepted"], len(partly.json()["refused"])) == (1, 1)


def test_the_directive_has_an_etag(api: TestClient) -> None:
    api.put("/api/v1/runs/a", json=SCHEDULED)
    first = api.get("/api/v1/runs/a/directive")
    assert first.headers["etag"] == '"0"'
    for known in ('"0"', 'W/"0"', '"7", "0"', "*"):
        assert api.get("/api/v1/runs/a/directive", headers={"If-None-Match": known}).status_code == 304
    assert api.get("/api/v1/runs/a/directive", headers={"If-None-Match": '"7"'}).status_code == 200


def test_a_long_poll_waits_for_the_next_generation(api: TestClient) -> None:
    api.put("/api/v1/runs/a", json=SCHEDULED)
    answers: list[Any] = []

    def poll() -> None:
        answers.append(api.get("/api/v1/runs/a/directive?wait=30", headers={"If-None-Match": '"0"'}))

    waiting = threading.Thread(target=poll)
    waiting.start()
    assert not answers
    for step in range(20):
        if api.post("/api/v1/runs/a/steps", json=steps(step)).json()["directive"]["generation"]:
            break
    waiting.join(timeout=20)
    assert answers[0].status_code == 200
    assert answers[0].json()["generation"] == 1
    assert answers[0].headers["etag"] == '"1"'


def test_a_long_poll_ends_with_304(api: TestClient) -> None:
    api.put("/api/v1/runs/a", json={})
    answer = api.get("/api/v1/runs/a/directive?wait=0.3", headers={"If-None-Match": '"0"'})
    assert (answer.status_code, answer.content) == (304, b"")


REFUSED: list[tuple[str, str, int, str, dict[str, Any]]] = [
    ("GET", "/nowhere", 404, "no route /nowhere", {}),
    ("GET", "/api/v1/runs/nobody", 404, "no run 'nobody'", {}),
    ("GET", "/api/v1/runs/nobody/events", 404, "no run 'nobody'", {}),
    ("POST", "/api/v1/runs/nobody/finish", 404, "no run 'nobody'", {"json": {}}),
    (
        "PUT",
        "/api/v1/runs/a/directive/3/ack",
        404,
        "no directive of generation 3",
        {"json": {"state": "applied"}},
    ),
    ("DELETE", "/api/v1/runs/a", 405, "use GET, PUT", {}),
    ("PUT", "/api/v1/runs/a", 422, "is not JSON", {"content": "{", "headers": JSON}),
    ("PUT", "/api/v1/runs/a", 422, "is not JSON", {"content": b"\xff\xfe", "headers": JSON}),
    ("PUT", "/api/v1/runs/a", 422, "is not JSON", {"content": '{"family": "\\ud800"}', "headers": JSON}),
    ("PUT", "/api/v1/runs/a", 422, "is not JSON", {"content": "[" * 100_000, "headers": JSON}),
    ("PUT", "/api/v1/runs/a", 422, "is not JSON", {"content": gzip.compress(b"{}"), "headers": JSON}),
    ("PUT", "/api/v1/runs/a", 422, "needs a JSON body", {}),
    ("PUT", "/api/v1/runs/a", 422, "header Content-Type: application/json", {"content": "{}"}),
    ("PUT", "/api/v1/runs/a", 422, "'risk': input should be less than 1, got 3", {"json": {"risk": 3}}),
    ("PUT", "/api/v1/runs/a", 422, "'budget': is not known; remove it", {"json": {"budget": 3}}),
    ("PUT", "/api/v1/runs/..%2Fa", 404, "no route", {"json": {}}),
    ("PUT", "/api/v1/runs/-a", 422, "use letters, digits", {"json": {}}),
    ("PUT", f"/api/v1/runs/{'a' * 129}", 422, "at most 128 characters", {"json": {}}),
    (
        "POST",
        "/api/v1/runs/a/steps",
        422,
        "'reports.0.samples': is required",
        {"json": {"reports": [{"step": 0}]}},
    ),
    ("POST", "/api/v1/runs/a/steps", 422, "'reports'", {"json": {"reports": []}}),
    ("POST", "/api/v1/runs/a/steps", 422, "metric name", {"json": steps(0, **{"<b>": 1.0})}),
    ("POST", "/api/v1/runs/a/steps", 422, "reward", {"json": steps(0, reward="high")}),
    ("POST", "/api/v1/runs/a/steps", 422, "reward", {"json": steps(0, reward=10**400)}),
    ("POST", "/api/v1/runs/a/steps", 422, "attempt", {"json": {**steps(0), "attempt": 2**63}}),
    ("POST", "/api/v1/runs/a/steps", 413, "larger than", {"content": b" " * (9 * 2**20), "headers": JSON}),
    ("GET", "/api/v1/runs?limit=0", 422, "query field 'limit'", {}),
    ("GET", "/api/v1/runs?state=asleep", 422, "query field 'state'", {}),
    ("GET", "/api/v1/runs/a/steps?from=-1", 422, "query field 'from'", {}),
    ("GET", "/api/v1/runs/a/steps?to=99999999999999999999", 422, "query field 'to'", {}),
    ("GET", "/api/v1/runs/a/directive?wait=61", 422, "query field 'wait'", {}),
    ("PUT", "/api/v1/runs/a/directive/99999999999/ack", 422, "generation", {"json": {"state": "applied"}}),
]


@pytest.mark.parametrize(("method", "path", "status", "words", "request_body"), REFUSED)
def test_every_error_has_the_one_shape(
    api: TestClient, method: str, path: str, status: int, words: str, request_body: dict[str, Any]
) -> None:
    api.put("/api/v1/runs/a", json={})
    answer = api.request(method, path, **request_body)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    problem = Problem.model_validate(answer.json())
    assert problem.status == status
    assert problem.title
    assert problem.type.startswith("urn:twoclocks:")
    assert problem.instance == answer.request.url.path
    assert words in problem.detail
    assert "\n" not in problem.detail
    if status == 422:
        assert answer.json()["errors"][0].keys() == {"loc", "msg", "type"}
    if status == 405:
        assert answer.headers["allow"] == "GET, PUT"


def test_a_body_that_does_not_say_its_length_is_limited_too(api: TestClient) -> None:
    answer = api.post("/api/v1/runs/a/steps", content=(b" " * 2**20 for _ in range(9)), headers=JSON)
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"


def test_an_internal_error_leaks_nothing(api: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("SELECT secret FROM vault")

    monkeypatch.setattr(api.app.state.store, "run", broken)  # type: ignore[attr-defined]
    answer = api.get("/api/v1/runs/a")
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert "secret" not in answer.text
    assert 'twoclocks_errors_total{kind="internal"} 1.0' in api.get("/metrics").text


def test_liveness_and_readiness(api: TestClient) -> None:
    assert api.get("/healthz").json() == {"status": "ok"}
    assert api.get("/readyz").json() == {"status": "ready"}


def test_a_database_that_lost_its_schema_is_not_ready(api: TestClient, url: str) -> None:
    from twoclocks.store import migrate

    migrate.downgrade(url, "base")
    for path in ("/readyz", "/api/v1/runs"):
        answer = api.get(path)
        assert answer.status_code == 503
        assert "twoclocks db upgrade" in answer.json()["detail"]
        assert answer.headers["retry-after"] == "1"
    assert api.get("/healthz").status_code == 200


def test_the_openapi_document_names_every_route(api: TestClient) -> None:
    document = api.get("/openapi.json").json()
    paths = {path: set(methods) for path, methods in document["paths"].items() if path.startswith("/api/v1")}
    assert paths == {
        "/api/v1/runs": {"get"},
        "/api/v1/runs/{run}": {"get", "put"},
        "/api/v1/runs/{run}/steps": {"get", "post"},
        "/api/v1/runs/{run}/clocks": {"get"},
        "/api/v1/runs/{run}/forecasts": {"get"},
        "/api/v1/runs/{run}/directive": {"get"},
        "/api/v1/runs/{run}/directives": {"get"},
        "/api/v1/runs/{run}/directive/{generation}/ack": {"put"},
        "/api/v1/runs/{run}/finish": {"post"},
        "/api/v1/runs/{run}/events": {"get"},
        "/api/v1/families": {"get"},
    }
    assert document["paths"]["/api/v1/runs/{run}/steps"]["post"]["requestBody"]
    page = api.get("/docs")
    assert page.status_code == 200
    assert "https://" not in page.text  # air-gapped: nothing from a CDN
    for asset in re.findall(r'(?:src|href)="(/[^"]+\.(?:js|css))"', page.text):
        assert api.get(asset).status_code == 200
