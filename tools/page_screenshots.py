"""Screenshots of the page, every tab at 1280 and 400 pixels width, from a real browser (Chromium and its driver).

    python tools/page_screenshots.py FOLDER [--address http://127.0.0.1:7860/]

Without an address a page is started, and pictures are taken once they are finished; what is deblurred is a procedural
scene through a lens. Written are PNG files; docs/images has them reduced (`--reduced`: JPEG of at most 150 kB, the four
narrow ones side by side in one).
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from PIL import Image

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
)  # fmt: skip
WIDTHS = {1280: 900, 400: 860}  # of the window, and its height
TABS = {  # what must be there before a picture is taken
    "Photograph": "return document.querySelector('#photograph')?.innerText.includes('finished')",
    "Lens": "return document.querySelectorAll('#mtf img, #numbers table').length >= 2",
    "Point": "return document.querySelectorAll('#pupils img').length == 1",
    "Deblur": "return [...document.querySelectorAll('#deblurred img')].filter(image => image.naturalWidth).length >= 2",
}
BLURRED = {"scene": "letters", "size": (720, 480), "lens": "zeiss-tessar-50-f3.5", "f_number": 5.6, "focus_m": 1.6}
PATIENCE_S = 400.0
MOST_BYTES = 150_000


def open_browser(profile: str) -> Any:
    """Headless Chromium with an empty profile."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def wait_for(browser: Any, script: str) -> None:
    """Wait until a script of the page gives true."""
    end = time.monotonic() + PATIENCE_S
    while not browser.execute_script(script):
        if time.monotonic() > end:
            raise SystemExit(f"not there after {PATIENCE_S:.0f} s: {script}")
        time.sleep(0.2)


def blurred_photograph(folder: Path) -> Path:
    """A scene as a lens blurs it, to be deblurred."""
    from defocus import Camera, load_lens
    from defocus.scene import make_scene

    picture = make_scene(BLURRED["scene"], BLURRED["size"]).picture()
    camera = Camera(load_lens(BLURRED["lens"]), f_number=BLURRED["f_number"], focus_m=BLURRED["focus_m"])
    file = folder / f"{BLURRED['scene']}.png"
    camera.photograph(picture.linear, picture.depth_m).save(str(file))
    return file


def take(browser: Any, address: str, width: int, out: Path, blurred: Path) -> list[Path]:
    """One picture of the whole page for each tab."""
    metrics = {"width": width, "height": WIDTHS[width], "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(address)
    files = []
    for tab, script in TABS.items():
        wait_for(browser, "return document.querySelectorAll('button[role=tab]').length > 3")
        browser.execute_script(
            "[...document.querySelectorAll('button[role=tab]')].find(b => b.innerText.trim() == arguments[0]).click()",
            tab,
        )
        if tab == "Deblur":
            browser.find_element("css selector", "#blurred-file input[type=file]").send_keys(str(blurred))
            wait_for(browser, f"return document.querySelector('#blurred-file').innerText.includes('{blurred.stem}')")
            browser.find_element("css selector", "#deblur").click()
        wait_for(browser, script)
        time.sleep(1.0)  # fading in
        height = int(browser.execute_script("return document.scrollingElement.scrollHeight"))
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics | {"height": min(height, 2400)})
        path = out / f"explore_{tab.lower()}_{width}.png"
        browser.save_screenshot(str(path))
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        files.append(path)
    return files


def reduce(path: Path) -> Path:
    """The picture as a JPEG of at most MOST_BYTES, beside it."""
    image = Image.open(path).convert("RGB")
    if image.width > 1000:
        image = image.resize((1000, round(image.height * 1000 / image.width)), Image.Resampling.LANCZOS)
    target = path.with_suffix(".jpg")
    for quality in range(88, 30, -6):
        image.save(target, quality=quality, optimize=True)
        if target.stat().st_size <= MOST_BYTES:
            break
    return target


def side_by_side(files: list[Path], target: Path) -> Path:
    """The upper parts of the pictures, in one."""
    images = [Image.open(file).convert("RGB") for file in files]
    width, height, gap = images[0].width, round(3.2 * images[0].width), 10
    row = Image.new("RGB", (len(images) * (width + gap) - gap, height), "white")
    for number, image in enumerate(images):
        row.paste(image.crop((0, 0, width, min(height, image.height))), (number * (width + gap), 0))
    row.save(target)
    return target


def main() -> None:
    """Take all pictures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--address", help="of a page that is served already")
    parser.add_argument("--reduced", action="store_true", help="JPEG files for the documentation instead of PNG")
    parser.add_argument("--width", type=int, choices=WIDTHS, help="only this one")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    server = None
    if arguments.address is None:
        from defocus.app import PageServer, ServerSettings

        server = PageServer(ServerSettings(warm=False, deadline_s=PATIENCE_S))
    with tempfile.TemporaryDirectory() as profile, tempfile.TemporaryDirectory() as folder:
        browser, blurred = open_browser(profile), blurred_photograph(Path(folder))
        try:
            for width in [arguments.width] if arguments.width else WIDTHS:
                files = take(browser, arguments.address or server.address, width, arguments.folder, blurred)
                if arguments.reduced and width == min(WIDTHS):
                    reduce(side_by_side(files, arguments.folder / "explore_narrow.png"))
                elif arguments.reduced:
                    for path in files:
                        reduce(path)
        finally:
            browser.quit()
            if server is not None:
                server.close()


if __name__ == "__main__":
    main()
