"""Draw the pictures of ``docs/app.md``: the page as a browser shows it, with a bundled table.

python tools/draw_app.py [FOLDER]

Needs the extras app and test, and the system's chromium. Draws every step in light and dark, wide and narrow, if a
folder is named; else the few that the documentation shows.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parents[1] / "docs" / "images"
SHOWN = {"columns": "app-columns.png", "fit": "app-task.png", "fitted": "app-result.png"}


def main() -> None:
    """Start the page, walk through it, and keep what it looks like."""
    command = [sys.executable, "-m", "evenout", "app", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as playwright:
        assert server.stdout is not None
        found = re.search(r"http://\S+", server.stdout.readline())
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        try:
            if found is None:
                raise SystemExit("the page did not start")
            if len(sys.argv) == 1:
                walk(chromium.new_page(viewport={"width": 1100, "height": 800}), found[0], keep_shown)
            for width, scheme in [(w, s) for w in (1280, 390) for s in ("light", "dark") if len(sys.argv) > 1]:
                settings: dict[str, Any] = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
                page = chromium.new_page(**settings)
                walk(page, found[0], keep_all(Path(sys.argv[1]), f"{scheme}-{width}"))
        finally:
            chromium.close()
            server.terminate()


def keep_shown(page: Any, step: str) -> None:
    """Keep the first screen of those steps that the documentation shows; of a task, its settings and its command."""
    if step == "fit":
        page.locator("#settings").screenshot(path=IMAGES / SHOWN[step])
    elif step in SHOWN:
        page.screenshot(path=IMAGES / SHOWN[step])


def keep_all(folder: Path, name: str) -> Callable[[Any, str], None]:
    """Keep every step, whole."""
    folder.mkdir(exist_ok=True)
    return lambda page, step: page.screenshot(path=folder / f"{name}-{step}.png", full_page=True)


def walk(page: Any, address: str, keep: Callable[[Any, str], None]) -> None:
    """From a bundled table to a fair score and the reasons of a person."""
    page.set_default_timeout(180_000)
    page.goto(address)
    keep(page, "start")
    page.click("[data-test=example-german]")
    page.wait_for_selector("[data-events], [data-roles]")
    keep(page, "reading")
    page.wait_for_selector("[data-roles]")
    keep(page, "columns")
    page.click("[data-test=columns-done]")
    page.wait_for_selector("[data-test=way-fit]")
    keep(page, "tasks")
    page.click("[data-test=way-score]")
    page.wait_for_selector("[data-test=missing]")
    keep(page, "missing")
    page.click("[data-test=way-fit]")
    page.wait_for_selector("[data-test=run]")
    keep(page, "fit")
    page.click("summary")
    keep(page, "more")
    page.click("[data-test=run]")
    page.wait_for_function("() => Number(document.querySelector('[data-count]')?.textContent) >= 2")
    keep(page, "running")
    page.wait_for_selector("[data-test=page]")
    page.frame_locator("[data-test=page]").locator("body[data-ready]").wait_for()
    keep(page, "fitted")
    page.click("[data-person] >> nth=0")
    page.wait_for_selector(".why pre")
    keep(page, "why")


if __name__ == "__main__":
    main()
