"""The first reason that `explain` prints, word for word, for constructed near misses of every kind.

`data/near_misses.yaml` has the models as text, and the output for the pattern asked about. `python -m tests.report.test_reasons`
writes the current output there, for review.
"""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx
import onnx.parser
import pytest
import yaml
from rich.console import Console

from onnx_subgraph import Options, explaining
from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.report import text
from onnx_subgraph.report.relevance import asked, unfused
from onnx_subgraph.report.selection import about

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).parent / "data" / "near_misses.yaml"
HEADER = '<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>\n'
MEASURED = re.compile(r"it takes [\d.]+ times")
"""What a table of measurements says, which is made anew from time to time."""
PLACE = re.compile(r"^(?P<file>patterns/\S+\.yaml):(?P<line>\d+):(?P<column>\d+)\n(?P=line) \|(?P<text>.*)\n *\|", re.MULTILINE)
"""A line of the catalogue, as an excerpt shows it. Its number changes with each edit above it."""
CASES = yaml.safe_load(DATA.read_text(encoding="utf-8"))


def first_reason(case: dict[str, Any], folder: Path) -> str:
    """The first reason that `explain model.onnx PATTERN` prints, after the name of the model."""
    source = case["model"]
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(source if source.startswith("<") else HEADER + source), path)
    own = ()
    if "own" in case:
        own = (folder / "mine" / f"{case['pattern'].replace('-', '_')}.yaml",)
        own[0].parent.mkdir(exist_ok=True)
        own[0].write_text(case["own"], encoding="utf-8")
    library = load_patterns(own)
    options = {"target": "function" if library.get(case["pattern"]).grow else "onnxruntime", **case.get("options", {})}
    lists = {key: tuple(value) for key, value in options.items() if isinstance(value, list)}
    result = explaining.explain(path, library, Options(only=(case["pattern"],), **{**options, **lists}))
    console = Console(width=200, record=True, markup=False, file=StringIO())
    console.print(
        text.explanation(asked(unfused(about(result, pattern=case["pattern"])), library.get(case["pattern"]))), soft_wrap=False
    )
    printed = MEASURED.sub("it takes … times", console.export_text().replace(str(folder), ""))
    blocks = [
        block
        for block in printed.split("\n\n")
        if not block.startswith(("/model.onnx", "Nearly", "Matched, not", "Unknown", "Weights"))
    ]
    if "There" in printed or not blocks:
        return printed
    return PLACE.sub(_without_number, "\n".join(line.rstrip() for line in blocks[0].strip().splitlines()) + "\n")


def _without_number(place: re.Match[str]) -> str:
    """The excerpt with `…` for the line's number, after a check that the file has this text there."""
    lines = (ROOT / place["file"]).read_text(encoding="utf-8").splitlines()
    assert lines[int(place["line"]) - 1].strip() == place["text"].strip()
    return f"{place['file']}:…:{place['column']}\n… |{place['text']}\n  |"


@pytest.mark.parametrize("case", CASES, ids=[case["kind"] for case in CASES])
def test_the_first_reason(case: dict[str, Any], tmp_path: Path) -> None:
    assert first_reason(case, tmp_path) == case["says"]


def _refresh() -> None:
    class Block(str):
        pass

    yaml.add_representer(Block, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|"))
    for case in CASES:
        with TemporaryDirectory() as folder:
            case["says"] = first_reason(case, Path(folder))
    written = ({key: Block(value) if "\n" in value else value for key, value in case.items()} for case in CASES)
    entries = (yaml.dump([case], sort_keys=False, width=400, allow_unicode=True) for case in written)
    DATA.write_text("\n".join(entries), encoding="utf-8")


if __name__ == "__main__":
    _refresh()
