"""The page in a real browser: it fits the window and the paper, nothing is cut off, and it loads no other resource."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onnx_subgraph.language.library import Library
from onnx_subgraph.report import html
from onnx_subgraph.report.entry import Entry
from tests.report.browser import BROWSER, DRIVER, Browser, browser
from tests.report.excerpts import fan
from tests.report.pages import entry, gelu, hostile

pytestmark = pytest.mark.skipif(BROWSER is None or DRIVER is None, reason="needs chromium and chromedriver")


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(bert: Entry, library: Library, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    found = {
        "real": html.page(bert, library),
        "hostile": hostile(library),
        "wide": html.page(entry(gelu(0, fan(14))), library),
    }
    for name, source in found.items():
        (folder / f"{name}.html").write_text(source, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in found}


@pytest.fixture(params=["real", "hostile", "wide"])
def page(request: pytest.FixtureRequest, window: Browser, pages: dict[str, Path]) -> Browser:
    """A page in a window as wide as a laptop's screen."""
    window.media()
    window.resize(1366)
    window.open(pages[request.param])
    return window


@pytest.mark.parametrize("width", [1366, 820, 390])
def test_the_page_is_as_wide_as_the_window(page: Browser, width: int) -> None:
    page.resize(width)
    assert page.ask("document.documentElement.scrollWidth") <= width


def test_long_names_are_broken_and_words_do_not_overlap(page: Browser) -> None:
    """Text of a table cell stays in its column. A table wider than the window can be scrolled."""
    page.resize(820)
    outside = page.ask("""[...document.querySelectorAll("td, th")].filter(cell => {
        const words = document.createRange()
        words.selectNodeContents(cell)
        return words.getBoundingClientRect().right > cell.getBoundingClientRect().right + 1
    }).map(cell => cell.textContent)""")
    assert outside == []


def test_text_stays_inside_the_boxes_of_a_drawing(page: Browser) -> None:
    """With the fonts of this machine. A box has room for the widest font."""
    outside = page.ask("""[...document.querySelectorAll(".graph g:not(.line)")].flatMap(group => {
        const box = group.querySelector("rect").getBBox()
        return [...group.querySelectorAll("text")].filter(text => {
            const words = text.getBBox()
            return words.x < box.x || words.x + words.width > box.x + box.width || words.y < box.y - 1
                || words.y + words.height > box.y + box.height + 1
        }).map(text => text.textContent)
    })""")
    assert outside == []
    assert page.ask("document.querySelectorAll('.graph').length") > 0


def test_drawings_are_large_enough_to_read(page: Browser) -> None:
    """Letters of 11 pixels keep at least 8. A drawing that would be smaller can be scrolled."""
    scales = page.ask("[...document.querySelectorAll('.graph')].map(g => g.clientWidth / g.viewBox.baseVal.width)")
    assert scales and all(8 / 11 <= scale <= 1.01 for scale in scales)


def test_nothing_is_fetched_and_the_policy_allows_the_style(page: Browser) -> None:
    assert page.ask("performance.getEntriesByType('resource').map(entry => entry.name)") == []
    assert page.ask("getComputedStyle(document.querySelector('h1')).fontSize") == "30px"


def test_no_name_of_the_model_becomes_a_tag(page: Browser) -> None:
    assert page.ask("document.querySelectorAll('script, img, iframe, link, object').length") == 0
    assert (
        page.ask("[...document.querySelectorAll('*')].some(one => [...one.attributes].some(a => a.name.startsWith('on')))")
        is False
    )
    assert page.ask("document.querySelectorAll('title').length") > 1, "the page has one, and so has every drawing"
    assert page.ask("document.title").endswith("onnx-subgraph")


def test_the_policy_stops_an_injected_script(window: Browser, pages: dict[str, Path], tmp_path: Path) -> None:
    """If escaping failed, the browser would still not run the script."""
    injected = "<script>document.title = 'ran'</script><b id=late onclick=\"document.title = 'ran'\">x</b></main>"
    (tmp_path / "page.html").write_text(pages["real"].read_text(encoding="utf-8").replace("</main>", injected), encoding="utf-8")
    window.open(tmp_path / "page.html")
    window.ask("document.getElementById('late').click()")
    assert window.ask("document.title") != "ran"


def test_every_site_is_printed(page: Browser) -> None:
    """On paper, folded sections are open and the table of contents is left out."""
    page.media("print")
    seen = page.ask("[...document.querySelectorAll('.sites tbody tr')].map(row => row.checkVisibility())")
    assert seen and all(seen)
    assert all(page.ask("[...document.querySelectorAll('.placed tbody tr')].map(row => row.checkVisibility())"))
    assert page.ask("getComputedStyle(document.querySelector('nav')).display") == "none"


def test_paper_is_white_also_in_dark_mode(page: Browser) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    page.media(dark=True)
    assert page.ask(background) == "rgb(18, 23, 28)"
    page.media("print", dark=True)
    assert page.ask(background) == "rgb(255, 255, 255)"


def test_the_page_prints_as_pdf(page: Browser) -> None:
    assert page.printed().startswith(b"%PDF")


def drawn(page: Browser, line: int) -> list[str]:
    """The operators of the first drawing with lines whose boxes are marked now, and that of which lines they are."""
    return page.ask(f"""[...document.querySelector("figure:has(.lines)").querySelectorAll(".side:first-child .graph .step")]
        .filter(group => (getComputedStyle(group.querySelector("rect")).strokeWidth == "3px")
            != group.classList.contains("of-{line}")).map(group => group.textContent)""")


@pytest.mark.parametrize("page", ["real"], indirect=True)
def test_a_line_with_the_focus_marks_its_nodes_and_no_others(page: Browser) -> None:
    """Without a script: `drawn` has the boxes that are marked wrongly."""
    page.command("Emulation.setFocusEmulationEnabled", enabled=True)
    count = page.ask("document.querySelectorAll('figure:has(.lines)')[0].querySelectorAll('.lines tbody tr').length")
    assert count > 1
    for line in range(1, count + 1):
        assert page.ask(f"document.querySelectorAll('figure:has(.lines)')[0].querySelectorAll('.of-{line}').length") > 0
        page.ask(f"document.querySelector('figure:has(.lines) .at-{line}').focus()")
        assert drawn(page, line) == []


@pytest.mark.parametrize("page", ["real"], indirect=True)
def test_a_node_under_the_pointer_marks_its_line(page: Browser) -> None:
    page.ask("document.querySelector('figure:has(.lines) .of-1').scrollIntoView({block: 'center', behavior: 'instant'})")
    box = page.ask(
        "(r => [r.x + r.width / 2, r.y + r.height / 2])"
        "(document.querySelector('figure:has(.lines) .of-1').getBoundingClientRect())"
    )
    page.command("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    shadows = page.ask(
        "[...document.querySelector('figure:has(.lines)').querySelectorAll('.lines tbody tr')]"
        ".map(row => getComputedStyle(row).boxShadow != 'none')"
    )
    assert shadows[0] and not any(shadows[1:])
