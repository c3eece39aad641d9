"""Counts what is fused in networks that jax2onnx, tf2onnx and paddle2onnx exported.

    python benchmarks/exporters.py FOLDER [--write]

`exporters_flax.py`, `exporters_keras.py` and `exporters_paddle.py` make the folder. They run where JAX, TensorFlow and
Paddle are installed; this command needs none of them. `fuse` runs with `--prefer fusion`, because the networks are so small
that many a fusion does not pay.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnxruntime

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from onnx_subgraph.language.library import load_patterns  # noqa: E402
from onnx_subgraph.options import Options  # noqa: E402
from onnx_subgraph.pipeline import fuse  # noqa: E402

MICROSOFT = "com.microsoft."
OPERATORS = {
    "attention": ("Attention", *(f"{MICROSOFT}{kind}Attention" for kind in ("MultiHead", "GroupQuery", ""))),
    "rotary": ("RotaryEmbedding", f"{MICROSOFT}RotaryEmbedding"),
    "LayerNorm": ("LayerNormalization", f"{MICROSOFT}SkipLayerNormalization", f"{MICROSOFT}EmbedLayerNormalization"),
    "RMSNorm": ("RMSNormalization", "SimplifiedLayerNormalization", f"{MICROSOFT}SkipSimplifiedLayerNormalization"),
    "GELU": ("Gelu", f"{MICROSOFT}Gelu", f"{MICROSOFT}FastGelu", f"{MICROSOFT}BiasGelu"),
    "SiLU": ("Swish", f"{MICROSOFT}QuickGelu"),
}
"""What a network calls → the operators that are one such call."""


@dataclass(frozen=True)
class Row:
    """The result of a network. counts: what it calls → (found, called)."""

    name: str
    nodes: tuple[int, int]
    counts: Mapping[str, tuple[int, int]]
    verdict: str

    def __str__(self) -> str:
        cells = ["{}/{}".format(*self.counts[kind]) if kind in self.counts else "" for kind in OPERATORS]
        return f"| {self.name} | {self.nodes[0]} → {self.nodes[1]} | {' | '.join(cells)} | {self.verdict} |"


def measure(path: Path) -> Row:
    """Fuse one network and count its operators."""
    called = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    result = fuse(path, None, load_patterns(), Options(dry_run=True, prefer="fusion"))
    assert result.verdict is not None
    counts = {kind: (sum(result.operators_after.get(o, 0) for o in OPERATORS[kind]), times) for kind, times in called.items()}
    return Row(path.stem, (result.nodes_before, result.nodes_after), counts, result.verdict.verdict)


def page(rows: list[Row], made_by: str) -> str:
    """The page: the sums, and a row for each network."""
    found, called = Counter[str](), Counter[str]()
    for row in rows:
        for kind, (mine, all_of_them) in row.counts.items():
            found[kind] += mine
            called[kind] += all_of_them
    sums = ", ".join(f"{found[kind]} of {called[kind]} {kind}" for kind in OPERATORS)
    before, after = (sum(row.nodes[index] for row in rows) for index in (0, 1))
    equivalent = sum(row.verdict == "equivalent" for row in rows)
    head = f"| network | nodes | {' | '.join(OPERATORS)} | verdict |\n|---|---:|{'---:|' * len(OPERATORS)}---|"
    return f"""# Networks of JAX, Keras and Paddle

Made by `python benchmarks/exporters.py FOLDER --write` with onnxruntime {onnxruntime.__version__}.
{made_by}
Weights are random. A column shows found/called: operators in the fused model, and calls in the network.
The patterns were written with these networks in view: the page shows what is found, not what would be found in others.

**Found: {sums}.
{equivalent} of {len(rows)} models are equivalent; {before:,} nodes became {after:,}.**

{head}
{chr(10).join(map(str, rows))}
"""


def _makers(folder: Path) -> str:
    """A sentence on the exporters, from the models themselves."""
    producers = Counter[str]()
    for path in sorted(folder.glob("*.onnx")):
        model = onnx.load(path, load_external_data=False)
        producers[" ".join(filter(None, (model.producer_name, model.producer_version.removesuffix(" None"))))] += 1
    *others, last = (f"{name} ({count})" for name, count in producers.items())
    return f"The models are from {' and '.join(filter(None, (', '.join(others), last)))}."


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where the exported networks are")
    parser.add_argument("--write", action="store_true", help="write benchmarks/exporters.md")
    arguments = parser.parse_args()
    paths = [path for path in sorted(arguments.folder.glob("*.onnx")) if path.with_suffix(".json").is_file()]
    if not paths:
        parser.error(f"{arguments.folder} has no .onnx with a .json: run exporters_flax.py or one of the others first")
    rows = [measure(path) for path in paths]
    text = page(rows, _makers(arguments.folder))
    print(text)
    if arguments.write:
        (HERE / "exporters.md").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
