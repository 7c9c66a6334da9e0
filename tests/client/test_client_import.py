"""What importing the client loads: it must stay light, and work where only the base install is."""

import subprocess
import sys

HEAVY = (
    "httpx",
    "numpy",
    "scipy",
    "pandas",
    "torch",
    "transformers",
    "fastapi",
    "starlette",
    "sqlalchemy",
    "alembic",
)


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_importing_the_client_loads_nothing_heavy() -> None:
    done = run(f"import sys, twoclocks.client; print([name for name in {HEAVY!r} if name in sys.modules])")
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_importing_the_client_loads_few_modules_of_ours() -> None:
    done = run(
        "import sys, twoclocks.client; print(*sorted(m for m in sys.modules if m.startswith('twoclocks.')))"
    )
    assert {name.split(".")[1] for name in done.stdout.split()} == {"client", "wire"}


def test_a_monitor_works_where_only_the_base_install_is(tmp_path: object) -> None:
    absent = [name for name in HEAVY if name not in ("httpx", "numpy", "scipy")]
    done = run(
        f"""
import sys
for name in {absent!r}:
    sys.modules[name] = None
from twoclocks.client import Monitor
monitor = Monitor("http://127.0.0.1:9", "run", spool_dir={str(tmp_path)!r})
monitor.report(step=0, samples=8, rollout_batch=8, learning_rate=1e-5, reward=0.5)
print(monitor.close(0.0), monitor.pending)
"""
    )
    assert done.stdout == "False 1\n", done.stderr
    assert "1 reports are not delivered; they wait in" in done.stderr
