"""How long the page takes from a click to the preview, and to the finished photograph; warm.

A scene of 960 × 640 pixels, several lenses. Answers are the server's own time for the small picture and for the
finished one, in this process; in the browser it is what a visitor waits, from the click to the new picture on the
screen of headless Chromium, where that is installed.

    python benchmarks/page_speed.py
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from machine import amount, machine, read_arguments, require, write_report

require("gradio")

from defocus.app.job_line import JobLine  # noqa: E402
from defocus.app.sharp_pictures import scene_picture  # noqa: E402
from defocus.app.shots import Shot, settled  # noqa: E402

SCENE = "portrait"
CAMERAS = amount(  # lens, f-number, blades, and whether finished photographs are measured, too
    (
        ("sigma-85-f1.4", 1.34, 0, True),
        ("leica-summicron-50-f2", 2.0, 0, False),
        ("sigma-85-f1.4", 2.8, 7, False),
        ("phone-us9063319", 2.25, 0, False),
    ),
    quick=(("leica-summicron-50-f2", 2.0, 0, False),),
)
FOCUS_M = (1.6, 1.8, 2.5, 5.0)
# Places of the picture, from its upper left: hedge, face, lawn. The first three, nearly as far, compile.
WARMING_CLICKS = ((0.85, 0.25), (0.50, 0.60), (0.20, 0.77))
CLICKS = ((0.90, 0.30), (0.50, 0.40), (0.20, 0.75))
# Pictures with the words above them, both read when the picture has been drawn: they may change one before the other.
WATCH = """
window.shown = [];
const box = document.querySelector('#photograph');
window.last = box.querySelector('img').src;
new MutationObserver(() => {
  const image = box.querySelector('img');
  if (image && image.src !== window.last) {
    window.last = image.src;
    image.decode().catch(() => {}).then(() => requestAnimationFrame(() => setTimeout(
      () => window.shown.push([performance.now(), box.innerText]))));
  }
}).observe(box, {subtree: true, childList: true, attributes: true, characterData: true});
box.addEventListener('click', () => { window.clicked = performance.now(); }, true);
"""
IS_READY = """
return document.querySelector('#start').innerText.trim() === ''
  && document.querySelector('#photograph').innerText.includes('finished')
  && !document.querySelector('#download-0').disabled
"""
PAUSE_S = 2.0  # between clicks: nothing of the one before is still on its way


def measure_answers() -> list[dict[str, Any]]:
    """Seconds of the server for each camera: previews at several focus distances, and finished photographs."""
    picture, rows = scene_picture(SCENE), []
    _ = any(both for *_, both in CAMERAS) and picture.full
    for lens, f_number, blades, both in CAMERAS:
        previews, finished, cpu = [], [], []
        for number, focus in enumerate(FOCUS_M):
            shot = Shot(settled(lens, f_number, blades, focus)[0], picture)
            start, cpu_start = time.perf_counter(), time.process_time()
            shot.preview()
            if number:  # the first traces the lens, and may compile
                previews.append(time.perf_counter() - start)
                cpu.append(time.process_time() - cpu_start)
        for focus in FOCUS_M[:2] if both else ():
            shot, line = Shot(settled(lens, f_number, blades, focus)[0], picture), JobLine(3600.0)
            start, cpu_start = time.perf_counter(), time.process_time()
            job = line.ask("benchmark", "photograph", shot.photograph)
            job.ended.wait()
            if job.error is not None:
                raise job.error
            finished.append((time.perf_counter() - start, time.process_time() - cpu_start))
        rows.append(
            {
                "lens": lens,
                "f_number": f_number,
                "blades": blades,
                "preview_s": statistics.median(previews),
                "slowest_preview_s": max(previews),
                "preview_cpu_s": statistics.median(cpu),
                "finished_s": finished[-1][0] if finished else None,
                "finished_cpu_s": finished[-1][1] if finished else None,
            }
        )
    return rows


def measure_browser() -> dict[str, Any] | None:
    """Seconds from a click to the preview and to the finished picture on the screen; None without a browser."""
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None or amount(False, quick=True):
        return None
    sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
    from selenium.webdriver.common.action_chains import ActionChains

    from defocus.app import PageServer, ServerSettings
    from page_screenshots import open_browser, wait_for

    load = os.getloadavg()[0]
    server = PageServer(ServerSettings(warm=False))
    previews, finished = [], []
    with tempfile.TemporaryDirectory() as profile:
        browser = open_browser(profile)
        try:
            browser.set_window_size(1280, 1100)
            browser.get(server.address)
            wait_for(browser, "return document.querySelector('#photograph')?.innerText.includes('finished')")
            browser.execute_script(WATCH)
            for number, (x, y) in enumerate((*WARMING_CLICKS, *CLICKS)):
                wait_for(browser, IS_READY)
                time.sleep(PAUSE_S)
                image = browser.find_element("css selector", "#photograph img")
                size = image.size
                browser.execute_script("window.shown = []; window.clicked = Infinity")
                place = int((x - 0.5) * size["width"]), int((y - 0.5) * size["height"])
                ActionChains(browser).move_to_element_with_offset(image, *place).click().perform()
                wait_for(browser, "return window.shown.some(([_, label]) => label.includes('finished'))")
                shown, start = browser.execute_script("return [window.shown, window.clicked]")
                words = ["preview" if "preview" in label else "finished" for _, label in shown]
                if words != ["preview", "finished"]:
                    raise SystemExit(f"a click must give a preview and a finished picture, not {words}")
                if number >= len(WARMING_CLICKS):
                    previews.append((shown[0][0] - start) / 1e3)
                    finished.append((shown[1][0] - start) / 1e3)
        finally:
            browser.quit()
            server.close()
    return {"load_before": load, "preview_s": previews, "finished_s": finished}


def page(result: dict[str, Any]) -> str:
    """The result as Markdown."""
    about = result["machine"]
    machine_text = f"{about['cpu']}, {about['cores']} cores, load before {about['load_before']:.1f}"
    scene_text = f"scene {SCENE}, 960 × 640 pixels, everything compiled (`benchmarks/page_speed.py`)"
    lines = ["# What a visitor of the page waits for", "", f"{machine_text}; {scene_text}.", ""]
    lines += ["The server's own time; previews are medians of three, finished ones the second with a lens:", ""]
    lines += ["| lens | aperture | blades | preview | CPU | slowest | finished | CPU |"]
    lines += ["| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for row in result["answers"]:
        finished = "– | –"
        if row["finished_s"] is not None:
            finished = f"{row['finished_s']:.1f} s | {row['finished_cpu_s']:.1f} s"
        lines.append(
            f"| {row['lens']} | f/{row['f_number']:g} | {row['blades'] or 'round'} | {row['preview_s']:.2f} s "
            f"| {row['preview_cpu_s']:.2f} s | {row['slowest_preview_s']:.2f} s | {finished} |"
        )
    browser = result["browser"]
    if browser is not None:
        texts = {name: ", ".join(f"{value:.2f}" for value in browser[name]) for name in ("preview_s", "finished_s")}
        lines += [
            "",
            "In the browser, from the click to the picture on the screen, sigma-85-f1.4 wide open; "
            f"clicks on the hedge, the face and the lawn, load before {browser['load_before']:.1f}:",
        ]
        lines += ["", f"- preview: {texts['preview_s']} s", f"- finished: {texts['finished_s']} s"]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--no-browser", action="store_true", help="the server's own time alone")
    parser.add_argument("--browser-only", action="store_true", help="keep the server's own time that is in --out")
    options = read_arguments(parser)
    if options.browser_only:
        result = json.loads((options.out / "page_speed.json").read_text("utf-8"))
    else:
        result = {"machine": machine(("jax", "gradio")), "answers": measure_answers()}
    result["browser"] = None if options.no_browser else measure_browser()
    write_report(options.out, "page_speed", result, page(result))


if __name__ == "__main__":
    main()
