"""Settings of the service: environment variables with the prefix `TWOCLOCKS_`, a `.env` file, or flags.

Nothing else in the service reads the environment. Every setting is a row of the README's settings table.
"""

from typing import Any, Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from twoclocks.errors import StartError

ENV_PREFIX = "TWOCLOCKS_"


class Settings(BaseSettings):
    """What the service needs to know before it starts. A flag beats the environment, which beats `.env`."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, env_file=".env", extra="ignore", frozen=True)

    database_url: str = Field(
        default="sqlite:///twoclocks.sqlite3",
        description="SQLAlchemy URL; the default is a SQLite file in the folder the service is started from",
    )
    host: str = Field(default="127.0.0.1", description="address to bind")
    port: int = Field(default=8900, ge=0, le=65_535, description="port to bind; 0 takes a free one")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="least level that is logged to stderr"
    )
    migrate_at_start: bool | None = Field(
        default=None,
        description="bring the schema up to date at start; by default for SQLite only",
    )
    max_body_bytes: int = Field(default=8 * 2**20, ge=1_024, description="largest request body that is read")


def load_settings(**given: Any) -> Settings:
    """The settings with `given` on top; raises StartError with one line that names the bad setting."""
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "settings"
        raise StartError(
            f"setting {ENV_PREFIX}{name.upper()}: {first['msg']}, got {first['input']!r}"
        ) from None
    except (UnicodeDecodeError, OSError) as error:
        raise StartError(f"the file .env cannot be read ({error}); correct or remove it") from None
