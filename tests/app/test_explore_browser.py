"""The page in a real browser, headless Chromium: every tab, a wrong file, two visitors, a narrow screen, keyboard only.

Pictures are tiny, and finished ones have discs for PSFs: the page is looked at here, not the physics.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import shlex
import shutil
import tempfile
import threading
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import defocus
from defocus import psfs
from defocus.app import point_view, sharp_pictures
from defocus.app.job_line import Report
from defocus.app.shots import Shot
from defocus.draw import compute_psf_grid

if importlib.util.find_spec("gradio") is None:  # which takes seconds to import, in the process that opens the page
    pytest.skip("the extra [web] is not installed", allow_module_level=True)
selenium = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
CHROMIUM = next((path for name in ("chromium", "chromium-browser") if (path := shutil.which(name))), None)
DRIVER = shutil.which("chromedriver")
if CHROMIUM is None or DRIVER is None:
    pytest.skip("Chromium and its driver are not here (Debian: chromium, chromium-driver)", allow_module_level=True)

from selenium.common.exceptions import TimeoutException, WebDriverException  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

SIZE = sharp_pictures.SMALL_SCENE_SIZE  # that of previews: nothing compiles for another
PATIENCE_S = 240.0  # a busy machine that compiles; not a verdict on speed
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--force-prefers-reduced-motion", "--window-size=1280,1200",
)  # fmt: skip
NATIVE = urllib.request.build_opener(urllib.request.ProxyHandler({}))

pytestmark = [
    pytest.mark.filterwarnings("default::DeprecationWarning"),  # of gradio's own libraries
    pytest.mark.filterwarnings("ignore:'future.no_silent_downcasting' is deprecated"),  # what gradio asks of pandas
    pytest.mark.filterwarnings("ignore:The copy keyword is deprecated"),
    pytest.mark.filterwarnings("default::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:unclosed event loop:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class Visitor:
    """One browser window on the page."""

    def __init__(self, driver: Any, address: str) -> None:
        self.driver, self.address = driver, address
        self.window = driver.current_window_handle

    def until(self, condition: Callable[[], Any]) -> Any:
        """What the condition gives once it is true."""
        wait = WebDriverWait(self.driver, PATIENCE_S, poll_frequency=0.1, ignored_exceptions=[Exception])
        try:
            return wait.until(lambda _: condition())
        except TimeoutException:
            state = f"{self.status!r}, {self.find('#photograph').text!r}, {self.command}"
            raise AssertionError(f"the page does not come to that: {state}") from None

    def find(self, css: str) -> Any:
        return self.driver.find_element(By.CSS_SELECTOR, css)

    def all(self, css: str) -> list[Any]:
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def open(self) -> Visitor:
        """The page with its first finished picture."""
        self.driver.get(self.address)
        self.until(lambda: self.find("#photograph img").get_attribute("src"))
        self.until(lambda: self.find("#download-0").is_enabled())
        return self

    @property
    def status(self) -> str:
        return self.find("#status").text

    @property
    def command(self) -> list[str]:
        return shlex.split(self.find("#command textarea").get_attribute("value"))

    def option(self, name: str) -> str:
        """The value of an option in the command line that the page shows."""
        return self.command[self.command.index(name) + 1]

    def tab(self, name: str) -> None:
        self.driver.find_element(By.XPATH, f"//button[@role='tab'][normalize-space()='{name}']").click()

    def finished(self) -> bool:
        return self.find("#download-0").is_enabled() and "finished" in self.find("#photograph").text


@pytest.fixture(scope="module")
def gate() -> threading.Event:
    """Closed, finished pictures wait for it."""
    event = threading.Event()
    event.set()
    return event


@pytest.fixture(scope="module")
def address(gate: threading.Event) -> Iterator[str]:
    from defocus.app import PageServer, ServerSettings

    def photograph(self: Shot, report: Report) -> Any:
        report("PSFs", 0.25)
        while not gate.wait(0.05):
            report("PSFs", 0.25)
        linear, depth = self.picture.full
        camera = self.setting.camera(depth.shape[::-1])
        return camera.photograph(linear, depth, sensor=False, method="disk", progress=report)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharp_pictures, "SCENE_SIZE", SIZE)
        patch.setattr(Shot, "photograph", photograph)
        patch.setattr(point_view, "compute_psf_grid", partial(compute_psf_grid, method="disk"))
        patch.setattr(point_view, "psfs", partial(psfs, method="disk"))
        sharp_pictures.scene_picture.cache_clear()
        server = PageServer(ServerSettings(warm=False))
        yield server.address
        gate.set()
        server.close()
        sharp_pictures.scene_picture.cache_clear()
        del server
    with warnings.catch_warnings():  # gradio leaves event loops open: found later, they would fail another test
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    options = selenium.ChromeOptions()
    options.binary_location = CHROMIUM
    with tempfile.TemporaryDirectory() as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        try:
            browser = selenium.Chrome(options=options, service=selenium.ChromeService(DRIVER))
        except WebDriverException as error:  # installed, but without what it needs
            pytest.skip(f"Chromium does not start: {error.msg}")
        yield browser
        browser.quit()


@pytest.fixture(scope="module")
def visitor(driver: Any, address: str) -> Iterator[Visitor]:
    """One visitor for all tests, so that the page is opened once. It leaves first: a server that ends waits for it."""
    visitor = Visitor(driver, address).open()
    yield visitor
    driver.get("about:blank")


def _get(url: str) -> tuple[int, bytes]:
    try:
        with NATIVE.open(url, timeout=PATIENCE_S) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def _click(visitor: Visitor, x: float, y: float) -> None:
    """Click at a place of the picture, in fractions from its upper left."""
    image = visitor.find("#photograph img")
    visitor.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", image)
    size = image.size
    offset = (x - 0.5) * size["width"], (y - 0.5) * size["height"]
    ActionChains(visitor.driver).move_to_element_with_offset(image, *map(int, offset)).click().perform()


def test_a_click_focuses_and_the_finished_picture_follows(visitor: Visitor) -> None:
    assert visitor.option("--lens") == "sigma-85-f1.4"
    scene = sharp_pictures.scene_picture("portrait")
    _click(visitor, 0.97, 0.2)  # the trees behind
    depth = scene.depth_at(0.97, 0.2)
    visitor.until(lambda: float(visitor.option("--focus-m")) == pytest.approx(depth, rel=0.03))
    visitor.until(visitor.finished)
    assert f"focused at {depth:.3g} m" in visitor.status
    _click(visitor, 0.5, 0.4)  # the face
    near = scene.depth_at(0.5, 0.4)
    assert near < depth
    visitor.until(lambda: float(visitor.option("--focus-m")) == pytest.approx(near, rel=0.03))
    visitor.until(visitor.finished)


def test_picture_and_settings_are_saved(visitor: Visitor, tmp_path: Path) -> None:
    visitor.until(visitor.finished)
    where = {"behavior": "allow", "downloadPath": str(tmp_path)}
    visitor.driver.execute_cdp_cmd("Browser.setDownloadBehavior", where)
    for number in range(2):
        visitor.find(f"#download-{number}").click()
    picture, text = tmp_path / "photograph.png", tmp_path / "photograph.json"

    def size() -> tuple[int, int]:
        with Image.open(picture) as image:
            return image.size

    visitor.until(lambda: picture.is_file() and size() == SIZE)
    settings = visitor.until(lambda: json.loads(text.read_text("utf-8")))
    assert shlex.split(settings["command"]) == visitor.command
    assert settings["picture"] == "portrait"


def test_another_scene_lens_and_two_lenses(visitor: Visitor) -> None:
    visitor.driver.find_element(By.XPATH, "//*[@id='scene']//label[normalize-space()='night']").click()
    visitor.until(lambda: visitor.command[2] == "scene:night")
    visitor.until(visitor.finished)
    visitor.tab("Before and after")
    visitor.until(lambda: len(visitor.all("#comparison img")) >= 2)
    visitor.tab("Two lenses")
    visitor.until(lambda: "Leica" in visitor.find("#lens-2").text and "finished" in visitor.find("#lens-2").text)
    assert visitor.find("#lens-1 img").get_attribute("src") != visitor.find("#lens-2 img").get_attribute("src")
    visitor.tab("Picture")
    box = visitor.find("#lens input")
    box.click()
    box.send_keys(Keys.CONTROL + "a")
    box.send_keys("Summicron", Keys.ENTER)
    visitor.until(lambda: visitor.option("--lens") == "leica-summicron-50-f2")
    visitor.until(visitor.finished)


def test_wrong_files_are_told_in_a_line(visitor: Visitor, tmp_path: Path) -> None:
    wrong = tmp_path / "holiday.txt"
    wrong.write_text("We were at the sea.\n")
    visitor.driver.execute_script("document.querySelectorAll('button.label-wrap').forEach(b => b.click())")
    visitor.until(lambda: visitor.find("#lens-file input[type=file]")).send_keys(str(wrong))
    alert = visitor.until(lambda: visitor.find("#status [role=alert]").text)
    assert "holiday.txt" in alert
    assert "Traceback" not in visitor.find("body").text
    assert tempfile.gettempdir() not in alert
    before = visitor.find("#status").text
    visitor.until(lambda: visitor.find("#photo-file input[type=file]")).send_keys(str(wrong))
    visitor.until(lambda: "holiday" in visitor.find("#photo-file").text)
    visitor.find("#take").click()
    text = visitor.until(lambda: visitor.status != before and visitor.find("#status [role=alert]").text)
    assert "neither a PNG, JPEG or TIFF nor a RAW file" in text
    visitor.driver.refresh()
    visitor.open()


def test_own_lens_and_own_photograph(visitor: Visitor, tmp_path: Path) -> None:
    from defocus.lens import load_lens, save_lens

    lens, photo = tmp_path / "mine.zmx", tmp_path / "mine.png"
    save_lens(load_lens("zeiss-tessar-50-f3.5"), lens)
    pixels = np.random.default_rng(2).integers(0, 180, (*SIZE[::-1], 3), np.uint8)
    Image.fromarray(pixels).save(photo)
    visitor.driver.execute_script("document.querySelectorAll('button.label-wrap').forEach(b => b.click())")
    visitor.until(lambda: visitor.find("#lens-file input[type=file]")).send_keys(str(lens))
    visitor.until(lambda: visitor.option("--lens") == "mine.zmx")
    visitor.until(lambda: visitor.find("#photo-file input[type=file]")).send_keys(str(photo))
    visitor.until(lambda: "mine" in visitor.find("#photo-file").text)
    visitor.find("#take").click()
    visitor.until(lambda: visitor.command[2] == "mine.png")
    assert visitor.option("--depth") == "depth.npz"
    visitor.until(visitor.finished)
    assert visitor.find("#download-2").is_enabled()  # the plane as a depth map
    visitor.driver.refresh()
    visitor.open()


def test_lens_tab(visitor: Visitor) -> None:
    visitor.tab("Lens")
    for part in ("layout", "mtf", "distortion"):
        image = visitor.until(lambda part=part: visitor.find(f"#{part} img"))
        assert image.get_attribute("alt")
    assert "focal length" in visitor.until(lambda: visitor.find("#numbers table").text)
    before = visitor.find("#mtf img").get_attribute("alt")
    box = visitor.find("#f-number input[type=number]")
    box.send_keys(Keys.CONTROL + "a")
    box.send_keys("4", Keys.TAB)
    visitor.until(lambda: visitor.find("#mtf img").get_attribute("alt") != before)  # at f/4 it is another
    assert "f/4" in visitor.status


def test_point_tab(visitor: Visitor) -> None:
    visitor.tab("Point")
    visitor.until(lambda: len(visitor.all("#tiles img")) == 12)
    visitor.until(lambda: len(visitor.all("#strip img")) == 5)
    for part in ("wavefronts", "pupils"):
        assert visitor.until(lambda part=part: visitor.find(f"#{part} img")).get_attribute("alt")
    tile = visitor.find("#tiles .defocus-tile")
    numbers = tile.find_element(By.TAG_NAME, "p")
    assert numbers.value_of_css_property("opacity") == "0"
    visitor.driver.execute_script("arguments[0].focus()", tile)
    assert numbers.value_of_css_property("opacity") == "1"
    assert "RMS radius" in numbers.text
    before = visitor.find("#tiles img").get_attribute("src")
    visitor.driver.find_element(By.XPATH, "//*[@id='scale']//label[normalize-space()='log']").click()
    visitor.until(lambda: visitor.find("#tiles img").get_attribute("src") != before)


def test_deblur_tab(visitor: Visitor, tmp_path: Path) -> None:
    from defocus.app.deblurring_view import missing_network

    visitor.tab("Deblur")
    why_not = missing_network()
    text = visitor.until(lambda: visitor.find("#deblur-text").text)
    assert visitor.find("#deblur").is_enabled() == (not why_not)
    if why_not:
        assert why_not.replace("`", "") in " ".join(text.split())
    else:
        visitor.find("#deblur").click()
        visitor.until(lambda: "drop a photograph first" in visitor.find("#status [role=alert]").text)
        photo = tmp_path / "blurred.png"
        Image.fromarray(np.full((40, 60, 3), 90, np.uint8)).save(photo)
        visitor.find("#blurred-file input[type=file]").send_keys(str(photo))
        visitor.until(lambda: "blurred" in visitor.find("#blurred-file").text)
        visitor.find("#deblur").click()
        visitor.until(lambda: len(visitor.all("#deblurred img")) >= 2)
        visitor.until(lambda: visitor.find("#download-deblurred").is_enabled())
    visitor.tab("Photograph")


def test_a_second_visitor_is_told_and_has_previews_meanwhile(visitor: Visitor, gate: threading.Event) -> None:
    visitor.until(visitor.finished)
    gate.clear()
    try:
        before = visitor.find("#photograph img").get_attribute("src")
        _click(visitor, 0.97, 0.2)
        visitor.until(lambda: visitor.find("#photograph img").get_attribute("src") != before)
        visitor.until(lambda: "PSFs 25%" in visitor.status)
        visitor.driver.switch_to.new_window("tab")
        second = Visitor(visitor.driver, visitor.address)
        second.driver.get(second.address)
        second.until(lambda: "preview" in second.find("#photograph").text)
        second.until(lambda: "waiting: another picture is being made before yours" in second.status)
    finally:
        gate.set()
    second.until(second.finished)
    second.driver.close()
    visitor.driver.switch_to.window(visitor.window)
    visitor.until(visitor.finished)


def test_keyboard_only(visitor: Visitor) -> None:
    """Tab reaches the lens, the aperture, the focus ring and the tabs; arrows and letters change them."""
    driver = visitor.driver
    driver.execute_script("document.activeElement.blur(); window.scrollTo(0, 0)")
    driver.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)

    def reach(script: str) -> Any:
        for _ in range(60):
            active = driver.switch_to.active_element
            if driver.execute_script(script, active):
                return active
            active.send_keys(Keys.TAB)
        raise AssertionError(f"the keyboard does not reach {script}")

    for name in ("lens", "f-number", "blades", "ring", "focus"):
        assert reach(f"return arguments[0].closest('#{name}') !== null").accessible_name
    box = driver.switch_to.active_element
    box.send_keys(Keys.CONTROL + "a")
    box.send_keys("3.21", Keys.ENTER)
    visitor.until(lambda: visitor.option("--focus-m") == "3.21")
    driver.execute_script("document.querySelector('#ring input[type=range]').focus()")
    driver.switch_to.active_element.send_keys(Keys.END)
    visitor.until(lambda: visitor.option("--focus-m") == "inf")
    reach("return arguments[0].getAttribute('role') === 'tab'")
    visitor.until(visitor.finished)


def test_narrow_screen(visitor: Visitor) -> None:
    """At 400 pixels nothing stands out to the right, and the picture is as wide as the screen."""
    metrics = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    visitor.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        for tab in ("Photograph", "Lens", "Point"):
            visitor.tab(tab)
            visitor.until(lambda: visitor.driver.execute_script("return document.scrollingElement.scrollWidth") <= 400)
        visitor.tab("Photograph")
        width = visitor.until(lambda: visitor.find("#photograph").size["width"])
        assert 300 <= width <= 400
    finally:
        visitor.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_nothing_is_fetched_from_elsewhere(visitor: Visitor) -> None:
    script = "return performance.getEntriesByType('resource').map(e => e.name)"
    names = visitor.driver.execute_script(script)
    assert names
    assert [name for name in names if not name.startswith((visitor.address, "data:", "blob:"))] == []


@pytest.mark.parametrize("name", ["/etc/passwd", str(Path(defocus.__file__)), "pyproject.toml", "../../../etc/passwd"])
def test_no_file_of_the_machine_is_served(address: str, name: str) -> None:
    for route in ("gradio_api/file=", "file=", "gradio_api/file/", "gradio_api/stream/"):
        status, body = _get(address + route + name)
        assert status >= 400
        assert b"root:" not in body
        assert b"import" not in body


def test_the_page_listens_to_this_machine_alone(address: str) -> None:
    assert address.startswith("http://127.0.0.1:")
