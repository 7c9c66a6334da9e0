"""Hostile input to the service: refused or bounded in words that help, never an internal error."""

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from twoclocks.app import create_app
from twoclocks.config import Settings, load_settings
from twoclocks.errors import PROBLEM_JSON, StartError


@pytest.fixture
def http(tmp_path: Path):  # type: ignore[no-untyped-def]
    settings = Settings(database_url=f"sqlite:///{tmp_path / 'hostile.sqlite3'}", _env_file=None)
    with TestClient(create_app(settings)) as client:
        yield client


def test_made_up_metric_names_do_not_blow_up_an_answer(http: TestClient) -> None:
    for step in range(1, 6):
        made_up = {f"m{step}_{number}": 1.0 for number in range(250)}
        must = {"step": step, "samples": 64 * step, "rollout_batch": 64, "learning_rate": 1e-6, "reward": 0.5}
        reply = http.post("/api/v1/runs/r/steps", json={"reports": [must | made_up]})
        assert reply.json()["accepted"] == 1
    columns = http.get("/api/v1/runs/r/steps").json()
    assert (len(columns["metrics"]), columns["metrics_left_out"]) == (1_000, 251)
    assert "reward" in columns["metrics"]


def test_a_bad_family_is_told_what_a_family_may_hold(http: TestClient) -> None:
    reply = http.put("/api/v1/runs/r", json={"family": "<script>"})
    assert reply.status_code == 422
    assert "256 characters" in reply.json()["detail"]
    assert "128 characters" in http.put("/api/v1/runs/r", json={"project": "<b>"}).json()["detail"]


def test_every_documented_error_is_a_problem(http: TestClient) -> None:
    for path, operations in http.get("/openapi.json").json()["paths"].items():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                assert status < "400" or list(response["content"]) == [PROBLEM_JSON], path


def test_an_unknown_asset_is_a_problem(http: TestClient) -> None:
    reply = http.get("/assets/..%2Fsecret")
    assert reply.status_code == 404
    assert "no such" in reply.text.lower() or "not found" in reply.text.lower()


def test_an_env_file_that_is_no_text_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_bytes(b"TWOCLOCKS_PORT=\xff\xfe\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StartError, match=r"\.env cannot be read"):
        load_settings()
