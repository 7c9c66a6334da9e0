"""The command line: every mistake is one clear line and exit code 2; a base install stays light."""

import subprocess
import sys
from pathlib import Path

import pytest

from twoclocks import __version__

HEAVY = {"fastapi", "sqlalchemy", "torch", "transformers", "alembic", "plotly", "uvicorn"}


def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "twoclocks", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)  # type: ignore[call-overload,no-any-return]


def test_version() -> None:
    assert run("--version").stdout.strip() == f"twoclocks {__version__}"


def test_client_needs_only_the_base_install() -> None:
    code = f"import sys, twoclocks.client; print(*({HEAVY} | {{'numpy', 'scipy'}}) & set(sys.modules))"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == ""
    )


@pytest.mark.parametrize(
    ("command", "module", "extra"),
    [
        ("serve", "fastapi", "service"),
        ("demo", "rich", "all"),
        ("claim", "rich", "all"),
        ("db upgrade", "alembic", "service"),
    ],
)
def test_missing_extra_is_named(command: str, module: str, extra: str) -> None:
    code = f"import sys; sys.modules[{module!r}] = None\nfrom twoclocks.cli import main\n"
    code += f"sys.exit(main({command.split()}))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stderr.strip().count("\n") == 0
    assert f"pip install 'twoclocks[{extra}]'" in done.stderr


def test_migrations_by_hand(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'twoclocks.sqlite3'}"
    assert "no schema yet" in run("db", "current", "--database-url", url).stdout
    upgraded = run("db", "upgrade", "--database-url", url)
    assert upgraded.returncode == 0
    assert upgraded.stdout == run("db", "current", "--database-url", url).stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["serve", "--port", "99999"], "TWOCLOCKS_PORT"),
        (["serve", "--host", "no.such.host.invalid", "--port", "0"], "no.such.host.invalid"),
        (["serve", "--database-url", "sqlite:////proc/nowhere/x.sqlite3", "--port", "0"], "/proc/nowhere"),
        (["serve", "--database-url", "nonsense", "--port", "0"], "database URL"),
        (["db", "upgrade", "--database-url", "nonsense"], "database URL"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], says: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2, done.stderr
    assert done.stderr.strip().count("\n") == 0, done.stderr
    assert says in done.stderr


def test_the_trainer_too_names_its_extra() -> None:
    code = "import sys; sys.modules['pydantic_settings'] = None\n"
    code += "from twoclocks_trainer.__main__ import main\nsys.exit(main(['--monitor', 'off']))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stderr.strip().endswith("pip install 'twoclocks[trainer]'")
