"""Install what `make test-web` needs, or say in a line what is missing: Playwright and Chromium."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec

PACKAGES = {"playwright": "playwright", "axe_playwright_python": "axe-playwright-python"}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def main() -> None:
    """Install, or exit with the line."""
    if missing := [name for module, name in PACKAGES.items() if find_spec(module) is None]:
        print(f"test-web: installing {' '.join(missing)} …", flush=True)
        done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *missing])
        if done.returncode:
            sys.exit(f"test-web: pip cannot install {' '.join(missing)}: is there a network?")
    if any(map(shutil.which, BROWSERS)):
        return
    if shutil.which("apt-get") and os.geteuid() == 0:
        print("test-web: installing chromium …", flush=True)
        command = ["apt-get", "install", "-qy", "--no-install-recommends", "chromium"]
        subprocess.run(command, stdout=subprocess.DEVNULL)
    if not any(map(shutil.which, BROWSERS)):
        sys.exit("test-web: Chromium is missing: sudo apt-get install chromium")


if __name__ == "__main__":
    main()
