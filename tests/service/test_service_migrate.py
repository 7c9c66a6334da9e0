"""Migrations: models and scripts agree, they go up and down with data, a newer database is refused."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, text

from twoclocks.errors import StartError
from twoclocks.store import Store, migrate
from twoclocks.store.tables import Base
from twoclocks.wire import StepBatch, StepReport

ROOT = Path(__file__).parents[2]


def tables(url: str) -> set[str]:
    engine = create_engine(url)
    try:
        return set(inspect(engine).get_table_names())
    finally:
        engine.dispose()


def execute(url: str, statement: str) -> None:
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            connection.execute(text(statement))
    finally:
        engine.dispose()


def test_models_and_migrations_agree(url: str) -> None:
    assert migrate.current(url) == migrate.head()
    assert migrate.differences(url) == []


def test_a_difference_would_be_found(url: str) -> None:
    execute(url, "ALTER TABLE runs ADD COLUMN stray INTEGER")
    assert migrate.differences(url)


def test_up_and_down_and_up_again_with_data(
    url: str, report: Callable[..., StepReport], batch: Callable[..., StepBatch]
) -> None:
    store = Store(url)
    store.ingest("a", batch(report(0), report(1)), 1.0)
    store.close()
    migrate.upgrade(url)  # already there: nothing is touched
    store = Store(url)
    assert store.steps("a").step == [0, 1]
    store.close()
    migrate.downgrade(url, "base")
    assert tables(url) <= {"alembic_version"}
    assert migrate.current(url) is None
    migrate.upgrade(url)
    assert tables(url) == set(Base.metadata.tables) | {"alembic_version"}
    assert migrate.differences(url) == []


def test_a_migration_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'half.sqlite3'}"
    execute(url, "CREATE TABLE steps (x INTEGER)")  # in the way of the last table that 0001 makes
    with pytest.raises(StartError, match="cannot use the database"):
        migrate.upgrade(url)
    assert tables(url) == {"steps"}


def test_a_newer_database_is_refused_in_one_line(url: str) -> None:
    execute(url, "UPDATE alembic_version SET version_num = '9999'")
    for attempt in (migrate.upgrade, migrate.current, migrate.require_head):
        with pytest.raises(
            StartError, match=r"revision 9999.*a newer one made it; upgrade twoclocks"
        ) as caught:
            attempt(url)
        assert "\n" not in str(caught.value)


def test_an_empty_database_is_not_enough_where_migrating_is_left_to_people(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'empty.sqlite3'}"
    with pytest.raises(StartError, match=r"has no schema yet .* run `twoclocks db upgrade`"):
        migrate.require_head(url)
    migrate.upgrade(url)
    migrate.require_head(url)


def test_alembics_own_command_works_from_the_repository(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'alembic.sqlite3'}"
    done = subprocess.run(
        [sys.executable, "-m", "alembic", "upgrade", "head"],
        cwd=ROOT,
        env={"TWOCLOCKS_DATABASE_URL": url, "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert migrate.current(url) == migrate.head()
    assert migrate.differences(url) == []


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite://", "would lose every report"),
        ("nonsense", "cannot be read"),
        ("sqlite:////no/such/folder/x.sqlite3", "the folder does not exist"),
        ("postgresql+nosuchdriver://localhost/x", "no driver"),
    ],
)
def test_a_bad_address_is_one_line(url: str, words: str) -> None:
    with pytest.raises(StartError, match=words) as caught:
        migrate.upgrade(url)
    assert "\n" not in str(caught.value)


def test_a_password_is_never_shown() -> None:
    with pytest.raises(StartError) as caught:
        migrate.upgrade("postgresql+nosuchdriver://me:sesame@localhost/x")
    assert "sesame" not in str(caught.value)


def test_another_file_is_not_a_database(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear reader, this is not a database." * 50)
    with pytest.raises(StartError, match="is not a SQLite database"):
        migrate.upgrade(f"sqlite:///{path}")
    assert path.read_text().startswith("Dear reader")
