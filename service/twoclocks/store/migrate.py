"""The schema's version: bringing a database up to this code's, saying which it has, refusing a newer one.

The scripts are the repository's `alembic/`; an installed wheel carries the same files as
`twoclocks/migrations`. A migration runs in one transaction, so that one which fails leaves nothing behind.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from twoclocks.errors import StartError
from twoclocks.store.engine import Database, shown, start_failure
from twoclocks.store.tables import Base

T = TypeVar("T")

# Any number will do, as long as nothing else in that database takes the same advisory lock.
MIGRATION_LOCK = 7_092_024


def scripts() -> Path:
    """The folder of migrations: the wheel's own, or the checkout's."""
    installed = Path(__file__).parents[1] / "migrations"
    return installed if (installed / "env.py").is_file() else Path(__file__).parents[3] / "alembic"


def head() -> str:
    """The revision that this code is written for."""
    revision = ScriptDirectory(str(scripts())).get_current_head()
    assert revision is not None
    return revision


def current(url: str) -> str | None:
    """The database's revision, None before the first migration. Raises StartError."""
    return _connected(url, lambda connection: MigrationContext.configure(connection).get_current_revision())


def upgrade(url: str, revision: str = "head") -> None:
    """Migrate up to `revision`. Raises StartError, one where the database is newer than this code."""
    _connected(url, lambda connection: command.upgrade(_config(connection), revision))


def downgrade(url: str, revision: str) -> None:
    """Migrate down to `revision` ("base" removes everything). Raises StartError."""
    _connected(url, lambda connection: command.downgrade(_config(connection), revision))


def require_head(url: str) -> None:
    """Raise StartError unless the database has exactly this code's schema."""
    found = current(url)
    if found != head():
        _connected(url, lambda connection: _known(found))
        state = f"is at revision {found}" if found else "has no schema yet"
        raise StartError(f"the database {state} and this code needs {head()}; run `twoclocks db upgrade`")


def differences(url: str) -> list[object]:
    """What autogenerate would still change: empty when migrations and tables.py agree."""
    options = {"compare_type": True, "compare_server_default": True}
    return list(
        _connected(
            url,
            lambda connection: compare_metadata(
                MigrationContext.configure(connection, opts=options), Base.metadata
            ),
        )
    )


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(scripts()).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _known(revision: str | None) -> None:
    if revision is None:
        return
    try:
        ScriptDirectory(str(scripts())).get_revision(revision)
    except CommandError:
        raise StartError(
            f"the database is at revision {revision}, which this version of twoclocks does not know: "
            "a newer one made it; upgrade twoclocks, or set TWOCLOCKS_DATABASE_URL to another database"
        ) from None


def _connected(url: str, work: Callable[[Connection], T]) -> T:
    database = Database(url)
    try:
        engine = database.engine.execution_options(immediate=True) if database.is_sqlite else database.engine
        with engine.begin() as connection:
            if not database.is_sqlite:
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
            _known(MigrationContext.configure(connection).get_current_revision())
            return work(connection)
    except CommandError as error:
        raise StartError(f"cannot migrate {shown(database.url)}: {error}") from error
    except SQLAlchemyError as error:
        raise start_failure(database.url, error) from error
    finally:
        database.close()
