"""Arrows point inward only: what each room of the code may import."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SERVICE = ROOT / "service" / "twoclocks"

NUMERICS = {"numpy", "scipy"}
# room -> (third-party packages, rooms of our own) it may import; the standard library is always allowed.
ROOMS: dict[str, tuple[set[str], set[str]]] = {
    "core": (NUMERICS, {"core"}),
    "wire.py": ({"pydantic"}, set()),
    "client": ({"httpx", "pydantic"}, {"client", "wire"}),
    "clocks.py": (NUMERICS, {"core", "wire"}),
    "store": (
        {"sqlalchemy", "alembic", "pydantic", "pydantic_core"},
        {"store", "wire", "clocks", "core", "errors"},
    ),
    "errors.py": ({"fastapi", "starlette", "pydantic"}, {"wire"}),
    "routes.py": (
        {"fastapi", "starlette", "pydantic", "pydantic_core", "prometheus_client"},
        {"wire", "store", "errors", "metrics", "watch"},
    ),
    "metrics.py": ({"prometheus_client", "fastapi", "starlette"}, {"wire", "store"}),
    "watch.py": (set(), {"store", "wire"}),
    "config.py": ({"pydantic", "pydantic_settings"}, {"errors"}),
}
STANDARD = set(__import__("sys").stdlib_module_names)


def imports(path: Path) -> set[str]:
    """Every module that a file imports, lazily or not, as dotted names."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_room_imports_only_inward(room: str) -> None:
    packages, rooms = ROOMS[room]
    target = SERVICE / room
    files = [target] if target.is_file() else sorted(target.rglob("*.py"))
    assert files, f"{room} is gone; change the map in this test with it"
    for path in files:
        for name in imports(path):
            top, *rest = name.split(".")
            if top == "twoclocks":
                assert not rest or rest[0] in rooms | {"__version__"}, f"{path.name} imports {name}"
            else:
                assert top in STANDARD | packages, f"{path.name} imports {name}"


@pytest.mark.parametrize("package", ["trainer/twoclocks_trainer", "dashboard/twoclocks_dashboard"])
def test_outer_packages_reach_the_service_through_wire_and_client_only(package: str) -> None:
    for path in sorted((ROOT / package).rglob("*.py")):
        for name in imports(path):
            top, *rest = name.split(".")
            if top == "twoclocks":
                assert not rest or rest[0] in {"client", "wire", "core", "__version__"}, (
                    f"{path.name} imports {name}"
                )


def test_a_room_that_reaches_outward_would_be_found(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("def f():\n    from twoclocks.store import Store\n")
    assert imports(bad) == {"twoclocks.store.Store"}
