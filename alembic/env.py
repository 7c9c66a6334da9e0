"""Runs the migrations, for `alembic upgrade head` in a checkout and for twoclocks.store.migrate anywhere.

twoclocks.store.migrate hands over an open connection with its transaction begun; on its own, alembic takes
the database from the service's settings (TWOCLOCKS_DATABASE_URL) and begins the transaction here.
"""

from alembic import context
from sqlalchemy import Connection

from twoclocks.config import load_settings
from twoclocks.store.engine import Database
from twoclocks.store.tables import Base


def migrate(connection: Connection) -> None:
    """Run what is asked on this connection. SQLite's DDL is transactional here, because we say BEGIN."""
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=True,
        transactional_ddl=True,
        compare_type=True,
    )
    with context.begin_transaction():
        context.run_migrations()


if context.is_offline_mode():
    context.configure(url=load_settings().database_url, target_metadata=Base.metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
elif (given := context.config.attributes.get("connection")) is not None:
    migrate(given)
else:
    database = Database(load_settings().database_url)
    with database.engine.execution_options(immediate=True).begin() as opened:
        migrate(opened)
    database.close()
