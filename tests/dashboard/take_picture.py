"""Take the README's screenshot: run the real demonstration and photograph its unguided run in mid-life.

Usage: python take_picture.py FILE.png (that is what `make picture` does)
"""

import subprocess
import sys
import time
from pathlib import Path

import httpx
from conftest import CHROMIUM, FLAGS  # beside this file, which is run as a script
from playwright.sync_api import sync_playwright

from twoclocks.demo.processes import free_port
from twoclocks.demo.recipe import pair
from twoclocks.demo.summary import Reader

SEED = 5
MOMENT = 2_304
"""Samples of the run when the picture is taken."""


def main(target: Path) -> None:
    """Run the demonstration and save the run page's first screen at the moment."""
    port = free_port()
    run = pair(SEED)[0].name
    command = [sys.executable, "-m", "twoclocks", "demo", "--exit", "--seed", str(SEED), "--port", str(port)]
    demo = subprocess.Popen(command)
    reader = Reader(f"http://127.0.0.1:{port}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        page = browser.new_page(
            viewport={"width": 1360, "height": 1330}, color_scheme="dark", device_scale_factor=1.5
        )
        while (seen := _look(reader, run)) is None or seen < MOMENT:
            if demo.poll() is not None:
                sys.exit("the demonstration ended before the picture was taken")
            if seen and page.url == "about:blank":
                page.goto(f"{reader.address}/runs/{run}")
            time.sleep(0.1)
        page.wait_for_timeout(1_200)
        page.screenshot(path=target)
        browser.close()
    demo.terminate()
    demo.wait()


def _look(reader: Reader, run: str) -> int | None:
    try:
        summary = reader.run(run)
    except httpx.TransportError:
        return None
    return summary.samples if summary else None


if __name__ == "__main__":
    main(Path(sys.argv[1]))
