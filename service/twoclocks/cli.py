"""The command `twoclocks`: it joins the rooms and holds no logic of its own.

A base install knows every command too; one whose extra is missing says which to install and ends with 2.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from twoclocks import __version__


class CommandError(Exception):
    """Something the user can put right; printed as one line, exit code 2."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 the claim failed, 2 bad input, 130 interrupted."""
    arguments = _parser().parse_args(argv)
    try:
        command: Callable[[argparse.Namespace], int] = arguments.command
        return command(arguments)
    except CommandError as error:
        print(f"twoclocks: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="twoclocks",
        description="Live collapse forecasting for GRPO training: both clocks, beside your job.",
    )
    parser.add_argument("--version", action="version", version=f"twoclocks {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    serve = commands.add_parser("serve", help="run the service and its dashboard")
    serve.add_argument("--host", help="address to bind (default 127.0.0.1)")
    serve.add_argument("--port", type=int, help="port to bind (default 8900)")
    serve.add_argument("--database-url", help="SQLAlchemy URL (default: SQLite in this folder)")
    serve.add_argument("--log-level", choices=["debug", "info", "warning", "error"])
    serve.set_defaults(command=_serve)

    demo = commands.add_parser("demo", help="train, forecast and switch on this machine, in a few minutes")
    _demo_flags(demo)
    demo.add_argument("--seed", type=int, default=1, help="seed of every run of the demo (default 1)")
    demo.add_argument("--port", type=int, default=8900, help="port of the dashboard (default 8900)")
    demo.add_argument("--exit", action="store_true", help="end when done instead of leaving the dashboard up")
    demo.add_argument(
        "--keep", type=Path, metavar="DIR", help="folder for database and logs (default: temporary)"
    )
    demo.set_defaults(command=_demo)

    claim = commands.add_parser("claim", help="measure the demo's claim over fresh seeds and print the table")
    _demo_flags(claim)
    claim.add_argument("--seeds", type=int, default=8, help="how many seeds (default 8)")
    claim.add_argument("--first-seed", type=int, default=100, help="the first of them (default 100)")
    claim.set_defaults(command=_claim)

    database = commands.add_parser("db", help="look after the database's schema")
    actions = database.add_subparsers(title="actions", required=True, metavar="ACTION")
    for name, text in (
        ("upgrade", "migrate to this version's schema"),
        ("current", "print the schema's revision"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("--database-url", help="SQLAlchemy URL (default: TWOCLOCKS_DATABASE_URL)")
        action.set_defaults(command=_database, action=name)
    return parser


def _demo_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the summary there")


def _missing(extra: str, error: ImportError) -> CommandError:
    return CommandError(
        f"this command needs the extra {extra!r}: pip install 'twoclocks[{extra}]' ({error.name} is missing)"
    )


def _serve(arguments: argparse.Namespace) -> int:
    try:
        from twoclocks.app import serve
        from twoclocks.config import load_settings
        from twoclocks.errors import StartError
    except ImportError as error:
        raise _missing("service", error) from None
    given = {
        name: value
        for name in ("host", "port", "database_url", "log_level")
        if (value := getattr(arguments, name)) is not None
    }
    try:
        return serve(load_settings(**given))
    except StartError as error:
        raise CommandError(str(error)) from None


def _demo(arguments: argparse.Namespace) -> int:
    try:
        from twoclocks.demo.run import demo
    except ImportError as error:
        raise _missing("all", error) from None
    return demo(
        seed=arguments.seed,
        port=arguments.port,
        leave=arguments.exit,
        summary_file=arguments.json,
        folder=arguments.keep,
    )


def _claim(arguments: argparse.Namespace) -> int:
    try:
        from twoclocks.demo.claim import claim
    except ImportError as error:
        raise _missing("all", error) from None
    return claim(
        seeds=range(arguments.first_seed, arguments.first_seed + arguments.seeds), summary_file=arguments.json
    )


def _database(arguments: argparse.Namespace) -> int:
    try:
        from twoclocks.config import load_settings
        from twoclocks.errors import StartError
        from twoclocks.store import migrate
    except ImportError as error:
        raise _missing("service", error) from None
    try:
        url = arguments.database_url or load_settings().database_url
        if arguments.action == "upgrade":
            migrate.upgrade(url)
        print(migrate.current(url) or "no schema yet; run `twoclocks db upgrade`")
    except StartError as error:
        raise CommandError(str(error)) from None
    return 0
