"""The HTML page: complete, safe for any model, and accessible to screen readers."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
import sys
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from onnx_subgraph.errors import Span, UsageError
from onnx_subgraph.expectation.check import Check
from onnx_subgraph.language.library import Library
from onnx_subgraph.matching.match import NearMiss
from onnx_subgraph.report import html, looks
from onnx_subgraph.report.entry import Entry
from onnx_subgraph.rewriting.excerpt import Excerpt
from onnx_subgraph.rewriting.lines import MatchedLine
from onnx_subgraph.rewriting.rewrite import Bug, Place, Rewrite, Skip
from onnx_subgraph.verification.accuracy import Accuracy
from onnx_subgraph.verification.blame import Undone
from onnx_subgraph.verification.own import OwnFusion, OwnSite, OwnWork
from onnx_subgraph.verification.site import SiteCheck
from onnx_subgraph.verification.verdict import PlacedNode, Placement, Run, Verdict
from tests.report.excerpts import chain
from tests.report.pages import entry, entry_of, gelu, hostile, result

VOID = {"meta", "br", "wbr", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """What a browser reads in a page: its tags in order, its text, and whether every tag is closed."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(attrs) == len(dict(attrs)), (tag, attrs)
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, self.getpos()
        self.text += " " if tag in {"td", "th", "dt", "dd", "p", "li"} else ""

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, attribute: str) -> list[str]:
        return [attrs[attribute] or "" for _, attrs in self.tags if attribute in attrs]

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


# Safe


@pytest.mark.parametrize("which", ["real", "hostile"])
def test_nothing_is_fetched_and_nothing_runs(which: str, library: Library, bert: Entry) -> None:
    """No script, no event handler, only links inside the page, and only the style that the policy allows."""
    source = html.page(bert, library) if which == "real" else hostile(library)
    page = Page(source)
    tags = {tag for tag, _ in page.tags}
    assert not tags & {
        "script",
        "img",
        "link",
        "iframe",
        "object",
        "embed",
        "base",
        "form",
        "image",
        "use",
        "foreignobject",
        "a:href",
    }
    names = {name for _, attrs in page.tags for name in attrs}
    assert not {name for name in names if name.startswith("on")}
    assert not names & {"src", "srcset", "style", "xlink:href", "action", "data"}
    assert all(href.startswith("#") for href in page.all("href"))
    style = re.search(r"<style>(.*)</style>", source, re.DOTALL)
    assert style is not None and "url(" not in style[1] and "@import" not in style[1]
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    [policy] = [attrs["content"] for tag, attrs in page.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def test_hostile_names_are_shown_as_text(library: Library) -> None:
    """Names are escaped, not removed, so that users find the node. Invisible and text-reversing characters become a sign."""
    source = hostile(library)
    assert "<script" not in source and "<img" not in source
    assert "<script>alert(1)</script>" in Page(source).text
    assert "{{ 7 * 7 }}" in Page(source).text
    assert not {"\x00", "\x1b", "\u202e"} & set(source)
    source.encode()


def test_visible_characters_are_kept_and_invisible_ones_are_shown() -> None:
    assert html.visible("naïve Größe · σ(x)\n\t日本") == "naïve Größe · σ(x)\n\t日本"
    assert html.visible("a\u202eb\x00c\ud800d") == "a�b�c�d"


# Complete


def test_every_site_is_listed(library: Library, bert: Entry) -> None:
    text = Page(html.page(bert, library)).text
    assert len(bert.result.rewrites) >= 5 + 2 + 2
    for rewrite in bert.result.rewrites:
        assert rewrite.node in text


def test_the_page_has_what_a_reader_needs(library: Library, bert: Entry) -> None:
    text = Page(html.page(bert, library, hidden=14)).text
    for fact in (
        "Equivalent",
        f"{bert.result.nodes_before} → {bert.result.nodes_after}",
        "14 → 17",
        "y = exact_gelu(x)",  # the formula, as in the pattern file
        "exact_gelu(x): 0.5 * x * (1 + Erf(x / sqrt(2))) | 0.5 * x * (1 - Erf(-1 / sqrt(2) * x))",  # and what it uses
        "Exact GELU",  # what it is
        "com.microsoft.BiasGelu",
        "patterns/activation/gelu.yaml",
        "compared with float64, each alone",
        "8 comparisons of 1 output",
        "14 places where a pattern only began to match",
    ):
        assert fact in " ".join(text.split())


def test_each_drawing_says_which_nodes_compute_which_line(library: Library, bert: Entry) -> None:
    """The table needs no pointer. Each box of a node has the numbers of its lines."""
    source = html.page(bert, library)
    gelu = source[source.index("<h3 id=", source.index(">gelu <") - 40) :]
    table = gelu[gelu.index('<table class="lines">') : gelu.index("</table>", gelu.index('<table class="lines">'))]
    assert "<code>exact_gelu(x): 0.5 * x * (1 + Erf(x / sqrt(2))) | 0.5 * x * (1 - Erf(-1 / sqrt(2) * x))</code>" in table
    assert [name in table for name in ("Div", "Erf", "Add", "Mul")] == [True] * 4
    assert "no line" not in table
    drawing = gelu[gelu.index("<svg") : gelu.index("</svg>")]
    assert drawing.count('class="step of-1"') == drawing.count('class="step') == 5


def test_nodes_that_no_line_matched_are_named(library: Library) -> None:
    """Shape arithmetic disappears with a match, and is part of its drawing."""
    site = replace(gelu(0), lines=(MatchedLine("y = 0.5 * x * (1 + Erf(x / sqrt(2)))", (0, 1, 3)),))
    text = Page(html.page(entry(site), library)).text
    assert "no line: these compute shapes Add" in " ".join(text.split())


def test_the_operators_that_changed_most_come_first() -> None:
    before, after = (
        {"Add": 90, "Mul": 40, "Sub": 30, "Div": 30, "Erf": 2},
        {"Add": 90, "Mul": 39, "Sub": 30, "Div": 30, "Gelu": 3},
    )
    assert [row.name for row in html.histogram(before, after)] == ["Gelu", "Erf", "Mul", "Add", "Div", "Sub"]
    assert html.histogram({}, {}) == () and [row.bars for row in html.histogram({"Add": 4}, {"Add": 1})] == [(1000, 250)]


@pytest.mark.parametrize("content", [None, "id: gelu\npattern: ["], ids=["gone", "damaged"])
def test_a_pattern_whose_file_changed_since_is_shown_without_a_formula(
    content: str | None, library: Library, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "gelu.yaml").write_text(content)
    patterns = tuple(replace(one, file=str(tmp_path / "gelu.yaml")) if one.id == "gelu" else one for one in library.patterns)
    text = Page(html.page(entry(gelu(0)), replace(library, patterns=patterns))).text
    assert "/layer.0/Gelu" in text and "exact_gelu" not in text


def test_operators_are_counted_before_and_after_fusing(library: Library, bert: Entry) -> None:
    rows = {
        row.name: (row.before, row.after, row.change)
        for row in html.histogram(bert.result.operators_before, bert.result.operators_after)
    }
    assert rows["Erf"] == (2, 0, "−2")
    assert rows["com.microsoft.BiasGelu"] == (0, 2, "+2")
    assert rows["Softmax"] == (2, 2, "0")
    assert sum(before for before, _, _ in rows.values()) == bert.result.nodes_before
    assert sum(after for _, after, _ in rows.values()) == bert.result.nodes_after


def test_equal_layers_are_drawn_once(library: Library) -> None:
    page = Page(html.page(entry(*(gelu(i) for i in range(100))), library))
    assert page.all("class").count("graph") == 2, "before and after"
    assert all(f"/layer.{i}/Gelu" in page.text for i in range(100))


def test_sites_that_look_different_are_drawn_too(library: Library) -> None:
    text = Page(html.page(entry(gelu(0), gelu(1), gelu(2, chain("Div", "Erf", "Mul"))), library)).text
    assert "Form 1, 2 sites." in text and "Form 2, 1 site." in text


def test_a_hundred_different_sites_give_a_small_page(library: Library) -> None:
    """The number of drawings is limited to what a person would look at."""
    operators = ["Add", "Mul", "Sub", "Div", "Erf", "Tanh", "Sqrt"]
    looks = [chain(*(operators[i // 7**d % 7] for d in range(3)), *["Relu"] * 40) for i in range(100)]
    source = html.page(entry(*(gelu(i, look) for i, look in enumerate(looks))), library)
    assert len(source) < 2_000_000
    assert source.count('class="graph"') == 2 * html.MOST_DRAWN
    text = Page(source).text
    assert all(f"/layer.{i}/Gelu" in text for i in range(100))


def test_of_very_many_sites_the_first_are_listed(library: Library) -> None:
    source = html.page(entry(*(gelu(i) for i in range(5000))), library)
    assert len(source) < 2_000_000
    assert f"And {5000 - looks.MOST_LISTED} sites more" in Page(source).text
    assert "All 5000 sites that look like this" in Page(source).text


def test_each_line_of_a_formula_that_is_shown_has_a_style_and_very_many_are_not_shown(library: Library) -> None:
    lines = tuple(MatchedLine(f"v{n} = Erf(x)", (0,)) for n in range(looks.MOST_LINES + 1))
    source = html.page(entry(replace(gelu(0), lines=lines)), library)
    for number in range(1, looks.MOST_LINES + 2):
        shown = [text in source for text in (f"v{number - 1} = Erf(x)", f"figure:has(.at-{number}:is(:hover")]
        assert shown == [number <= looks.MOST_LINES] * 2


def test_of_a_huge_site_only_the_operators_are_counted(library: Library) -> None:
    huge = Excerpt(operators=Counter({"MatMul": 300, "Add": 200}))
    text = Page(html.page(entry(gelu(0, huge)), library)).text
    assert "500 nodes, too many to draw: 300 MatMul, 200 Add." in text
    various = Excerpt(operators=Counter({f"Op{n:02}": 100 - n for n in range(looks.MOST_NAMES + 2)}))
    text = Page(html.page(entry(gelu(0, various)), library)).text
    assert f"{100 - looks.MOST_NAMES + 1} Op{looks.MOST_NAMES - 1} and 2 operators more." in text


def test_a_rewrite_without_an_excerpt_is_listed_without_a_drawing(library: Library) -> None:
    source = html.page(entry(Rewrite("gelu", "Gelu", "/Gelu", ("/a",), 1)), library)
    assert "/Gelu" in Page(source).text and 'class="graph"' not in source


def test_a_match_that_became_a_constant_is_listed(library: Library) -> None:
    folded = Rewrite("gelu", "", "", ("/a",), 0, before=chain("Erf"), after=Excerpt())
    assert "(none)" in Page(html.page(entry(folded), library)).text


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (
            Verdict("different", "kernel", (Run("CPUExecutionProvider", True, {}, 0, "y", 0.5, 1e-6, (3,)),)),
            "Different After 1 fusion the model does not compute what it did.",
        ),
        (Verdict("different", "kernel", (Run("", False, {}, None, "y", 0, 0, (), "another shape"),)), "another shape"),
        (Verdict("different", "kernel", (Run("", False, {}, None, "y", 0, 0, (), "lost"),)), "The models could not be compared."),
        (
            Verdict("not-run", reason="verification was not asked for"),
            "Not verified 1 fusion; nothing was compared: verification",
        ),
        (Verdict("different", "kernel", (Run("EP", True, {}, 0, "y", float("inf"), 0.0, ()),)), "inf"),
    ],
)
def test_failures_come_first(verdict: Verdict, words: str, library: Library) -> None:
    text = " ".join(Page(html.page(entry(gelu(0), verdict=verdict), library)).text.split())
    assert words in text
    assert "Nothing was written." in text


def place_of(layer: int) -> Rewrite:
    """A rewrite with its own place."""
    root = f"/layer.{layer}/Mul"
    return replace(gelu(layer), root=root, place=Place("gelu", "", (root,)))


def test_an_undone_fusion_is_drawn_with_the_reason(library: Library) -> None:
    """The model is equivalent without it. The page shows the warning right after the verdict."""
    wrong, too = (Undone(place_of(7 + i), "site", "EP", "y", 0.5, 1e-6, 1e-7) for i in range(2))
    source = html.page(entry(gelu(0), undone=(wrong, too)), library)
    text = " ".join(Page(source).text.split())
    assert "2 fusions that did not hold are undone." in text and 'class="warn-news"' in source
    assert "gelu /layer.7/Mul Its result y is 0.5 from the truth; 1e-06 is allowed, and 1e-07 was the error before" in text
    assert source.count('class="graph"') == 4, "before and after, of what was kept and, once, of what was not"
    assert "/layer.8/Mul" in text
    assert "1 fusion that did not hold is undone." in html.headline(entry(gelu(0), undone=(wrong,))).sentence


def test_a_pattern_whose_file_is_gone_is_listed_without_its_formula(library: Library, tmp_path: Path) -> None:
    file = tmp_path / "silu.yaml"
    file.write_text("id: gelu\nsummary: A gate.\nmatch: y = x * Sigmoid(x)\nexample: {x: 'float32[2, 8]'}\n", encoding="utf-8")
    pattern = replace(next(one for one in library.patterns if one.id == "gelu"), file=str(file), summary="A gate.")
    for is_there in (True, False):
        text = Page(html.page(entry(gelu(0)), replace(library, patterns=(pattern,)))).text
        assert "A gate." in text and ("y = x * Sigmoid(x)" in text) is is_there
        file.unlink(missing_ok=True)


def test_of_undone_fusions_that_all_look_otherwise_only_the_first_are_drawn(library: Library) -> None:
    sites = [replace(place_of(n), before=chain(*["Add"] * n)) for n in range(1, html.MOST_DRAWN + 4)]
    source = html.page(entry(undone=tuple(Undone(site, "site", "EP", "y", 0.5, 1e-6) for site in sites)), library)
    assert source.count('class="graph"') == 2 * html.MOST_DRAWN
    assert all(site.root in Page(source).text for site in sites)


def test_the_page_shows_each_fusion_checked_alone(library: Library) -> None:
    good = SiteCheck(replace(gelu(0), root="/layer.0/Mul"), "EP", "y", Accuracy(1e-7, 2e-7, 1e-6))
    unknown = SiteCheck(gelu(1), "EP", unknown="it is inside a loop")
    text = " ".join(Page(html.page(entry(gelu(0), gelu(1), sites=(good, unknown)), library)).text.split())
    for fact in ("all hold", "/layer.0/Mul", "2e-07 1e-07 1e-06 10 % yes", "not known: it is inside a loop"):
        assert fact in text


def test_the_page_shows_where_nodes_ran_on_each_provider(library: Library) -> None:
    """Nodes that ran on the CPU instead of the accelerator are listed by operator and by name."""
    nodes = [*(PlacedNode(f"/m{i}", "MatMul", "EP") for i in range(3)), PlacedNode("/m3", "MatMul", "CPU")]
    nodes += [PlacedNode("/gelu", "com.microsoft.Gelu", "CPU")]
    run = Run("EP", True, {}, 0, "y", 1e-7, 1e-6, ())
    verdict = Verdict("equivalent", "kernel", (run,), placements=(Placement("EP", tuple(nodes)),))
    text = " ".join(Page(html.page(entry(gelu(0), verdict=verdict), library)).text.split())
    for fact in ("EP took 3 of 5 nodes; the CPU has the others.", "MatMul 3 1 /m3", "com.microsoft.Gelu 0 1 /gelu"):
        assert fact in text


def test_an_assumed_provider_is_not_shown_as_run(library: Library) -> None:
    """Both the section on verification and the settings of the run say so."""
    source = html.page(entry(gelu(0), assumed=("CUDAExecutionProvider",)), library)
    text = " ".join(Page(source).text.split())
    assert "Not run on CUDAExecutionProvider: it was assumed, from a table of the kernels of onnxruntime 1." in text
    assert "onnxruntime on CPUExecutionProvider, CUDAExecutionProvider (assumed)" in text


def test_the_page_shows_the_fusions_of_onnxruntime(library: Library) -> None:
    """Both tables of `--compare-ort`. Fusions that prevent onnxruntime's own are highlighted and named."""
    own = (OwnFusion("com.microsoft.Gelu", "/g0", "kept", ""), OwnFusion("com.microsoft.Gelu", "/g1", "blocked", "Erf"))
    work = OwnWork("EP", own, (OwnSite(gelu(0), "com.microsoft.Gelu"), OwnSite(gelu(1)), OwnSite(gelu(2), inside=True)), 9, 7)
    page = Page(html.page(entry(gelu(0), gelu(1), gelu(2), own=(work,)), library))
    text = " ".join(page.text.split())
    for fact in (
        "9 nodes by itself, 7 with ours; 1 of our 3 fusions it does not make; 1 fusion of its own blocked.",
        "com.microsoft.Gelu 2 1 – 1 /g1",
        "gelu com.microsoft.Gelu 1 com.microsoft.Gelu gelu com.microsoft.Gelu 1 leaves it",
        "gelu com.microsoft.Gelu 1 inside a larger one",
    ):
        assert fact in text
    assert "#by-itself" in page.all("href")
    failed = OwnWork("EP", failure="it does not load the fused model: no kernel")
    text = " ".join(Page(html.page(entry(gelu(0), own=(failed,)), library)).text.split())
    assert "Not known: it does not load the fused model: no kernel." in text
    assert "By onnxruntime itself" not in Page(html.page(entry(gelu(0)), library)).text


def test_a_missed_expectation_is_a_failure(library: Library) -> None:
    span = Span("expect.yaml", 3, 5, 8, "    gelu: 12")
    checks = (
        Check("gelu", "12", "11", False, span, ("/layer.7 lacks one",)),
        Check("size", "at most 1 MB", "0.5 MB", True, span),
    )
    source = html.page(entry_of(result(gelu(0)), 1, checks), library)
    text = " ".join(Page(source).text.split())
    assert "1 of 2 expectations missed" in text and 'class="bad-news"' in source
    for fact in ("expect.yaml:3:5", "/layer.7 lacks one", "gelu 12 11 no"):
        assert fact in text


def test_a_model_that_was_not_run_is_not_said_to_have_outputs_within_bounds(library: Library) -> None:
    verdict = Verdict("equivalent", reason="each fusion is right by itself; the model was not run")
    text = Page(html.page(entry(gelu(0), gelu(1), verdict=verdict), library)).text
    assert "Each of 2 fusions is right by itself; the model was not run." in text and "within its bound" not in text


def test_a_bug_is_told_first_and_not_among_what_was_not_fused(library: Library) -> None:
    skip = Skip("mish", "/1/Mul", "a bug", bug=Bug("KeyError: 'x'", ""))
    text = Page(html.page(entry(gelu(0), skipped=(skip,)), library)).text
    assert "mish at /1/Mul: KeyError: 'x'." in text and text.count("/1/Mul") == 1


def test_the_size_of_a_file_that_was_not_written_is_shown(library: Library) -> None:
    assert "File – → 1.5 MB" in " ".join(Page(html.page(entry(gelu(0), size=1_500_000), library)).text.split())


def test_the_page_of_a_model_in_which_nothing_fused(library: Library) -> None:
    text = Page(html.page(entry(verdict=Verdict("equivalent", reason="nothing fused")), library)).text
    assert "Nothing fused" in text and "No pattern was replaced." in text


def test_the_page_shows_what_was_not_fused_and_why(library: Library) -> None:
    span = Span("patterns/activation/gelu.yaml", 5, 13, 6, "  y = 0.5 * x * (1 + Erf(x / sqrt(2)))")
    change = "put 0.5 in the place of [0.75]"
    misses = tuple(NearMiss("gelu", span, f"/layer.{i}/Erf", f"/layer.{i}/Mul", "0.5", "[0.7]", 3, change) for i in range(12))
    skips = (Skip("layer-normalization", "/LN", "needs opset 17", 17, change="let the model be raised"),)
    text = Page(html.page(entry(near_misses=misses, skipped=skips), library)).text
    for fact in (
        "12 places",
        "[0.7]",
        "/layer.0/Mul",
        "needs opset 17",
        "/LN",
        "gelu.yaml:5:13",
        "5 |   y = 0.5 * x * (1 + Erf",
        change,
        skips[0].change,
    ):
        assert fact in text
    assert text.count("[0.7]") == 1


def test_the_page_is_reproducible_byte_for_byte(library: Library, bert: Entry) -> None:
    assert html.page(bert, library) == html.page(bert, library)


# Accessible


def test_ids_are_unique_and_links_lead_to_them(library: Library, bert: Entry) -> None:
    page = Page(html.page(bert, library))
    ids = page.all("id")
    assert len(ids) == len(set(ids))
    referred = {href[1:] for href in page.all("href")} | {name for label in page.all("aria-labelledby") for name in label.split()}
    assert referred <= set(ids)


def test_headings_go_down_one_level_at_a_time(library: Library, bert: Entry) -> None:
    told = replace(bert.result, near_misses=(NearMiss("gelu", None, "/a", "/b", "1", "2", 3),))
    levels = [int(tag[1]) for tag, _ in Page(html.page(entry_of(told), library)).tags if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_tables_have_headers_and_drawings_have_words(library: Library, bert: Entry) -> None:
    page = Page(html.page(bert, library))
    assert all("scope" in attrs for tag, attrs in page.tags if tag == "th")
    assert page.count("th") > page.count("table") > 0
    for tag, attrs in page.tags:
        if tag == "svg":
            assert attrs.get("aria-hidden") == "true" or (attrs["role"] == "img" and attrs["aria-labelledby"])
    assert ("html", {"lang": "en"}) in page.tags


def test_drawings_are_well_formed(library: Library, bert: Entry) -> None:
    for source in (html.page(bert, library), hostile(library)):
        drawings = re.findall(r'<svg class="graph".*?</svg>', source, re.DOTALL)
        assert drawings
        for drawing in drawings:
            root = ElementTree.fromstring(drawing)
            assert [child.tag for child in root][:2] == ["title", "desc"]
            assert all((child.text or "").strip() for child in list(root)[:2])


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark", "paper"])
def test_colours_have_enough_contrast(scheme: str) -> None:
    """WCAG 2.2: a contrast of 4.5 for text (1.4.3) and 3 for meaningful lines (1.4.11)."""
    style = (html.PAGE / "style.css").read_text(encoding="utf-8")
    blocks = [dict(re.findall(r"--([\w-]+): (#\w{6});", block)) for block in re.findall(r":root \{(.*?)\}", style, re.DOTALL)]
    assert len(blocks) == 3
    colours = blocks[0] | blocks[["light", "dark", "paper"].index(scheme)]

    def contrast(a: str, b: str) -> float:
        high, low = sorted((luminance(colours[a]), luminance(colours[b])), reverse=True)
        return (high + 0.05) / (low + 0.05)

    for text in ("ink", "soft", "accent", "good", "bad", "warn"):
        assert contrast(text, "paper") >= 4.5, text
    for text, behind in (
        ("ink", "panel"),
        ("soft", "panel"),
        ("on-accent", "accent"),
        ("ink", "pale"),
        ("soft", "pale"),
        ("soft", "box"),
    ):
        assert contrast(text, behind) >= 4.5, (text, behind)
    for line, behind in (("edge", "paper"), ("edge", "box"), ("accent", "pale")):
        assert contrast(line, behind) >= 3, (line, behind)


# Missing packages


def test_a_missing_package_is_named_with_the_command_to_install_it(monkeypatch: pytest.MonkeyPatch, library: Library) -> None:
    monkeypatch.setattr(html, "find_spec", lambda name: None if name == "fast_sugiyama" else sys)
    with pytest.raises(UsageError) as caught:
        html.page(entry(), library)
    assert caught.value.message == "--report needs fast-sugiyama, which is not installed"
    assert caught.value.hint == "install it with: pip install 'onnx-subgraph[report]'"
