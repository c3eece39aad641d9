"""Times sites where the channels of images are mixed before the images are enlarged, compared with mixing them behind.

    python benchmarks/enlarged.py [--budget 2] [--write]

A site is a 1 × 1 convolution of images side by side, and a Relu. The first image has the full size, each other one half the size
of the one before, and is enlarged to the first. `fuse` makes the second model, without its limit for the number of results
(`MOST_RESULTS` in `onnx_subgraph/simplification/enlarged.py`): what the limit leaves is marked by "no". Both run in turn, on one
thread. A time is the lower quartile of the runs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
import onnx
import onnx.helper as make
from onnx import numpy_helper
from taking_turns import open_session, quartiles, seconds_of_runs

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from onnx_subgraph.language.library import load_patterns  # noqa: E402
from onnx_subgraph.options import Options  # noqa: E402
from onnx_subgraph.pipeline import fuse  # noqa: E402
from onnx_subgraph.simplification import enlarged  # noqa: E402
from onnx_subgraph.timing.tuning import processor  # noqa: E402

PAGE = """\
# Channels mixed before images are enlarged

Made by `python benchmarks/enlarged.py --write` with onnxruntime {onnxruntime} on {machine}, one thread. Each image has the given
number of channels. Below 1 is faster.

| images | channels | results | size | enlarged by | time | done |
|---:|---:|---:|---:|---|---|---|
"""


class Site(NamedTuple):
    """Images side by side. channels: of each. results: of the convolution. size: of the first image. mode: of Resize."""

    images: int
    channels: int
    results: int
    size: int
    mode: str = "linear"


SITES = (
    *(
        Site(4, channels, results, size)
        for channels, results, size in ((256, 256, 64), (256, 256, 128), (768, 768, 64), (48, 48, 64))
    ),
    *(
        Site(2, channels, results, size, mode)
        for mode in ("nearest", "linear")
        for channels, results, size in ((256, 128, 40), (64, 64, 80), (64, 128, 80), (16, 16, 80), (64, 256, 40), (16, 64, 80))
    ),
)


def model(site: Site) -> onnx.ModelProto:
    """The images side by side, and the convolution."""
    draw, place = np.random.default_rng(0), "half_pixel" if site.mode == "linear" else "asymmetric"
    total = site.images * site.channels
    weights = draw.standard_normal((site.results, total, 1, 1)) / total**0.5
    stored = [numpy_helper.from_array(weights.astype(np.float32), "weights")]
    nodes, inputs, names = [], [], []
    for index in range(site.images):
        size, name, factor = site.size >> index, f"x{index}", 1 << index
        inputs.append(make.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, site.channels, size, size]))
        if index:
            stored.append(numpy_helper.from_array(np.array([1, 1, factor, factor], np.float32), f"factor{index}"))
            how = {"mode": site.mode, "coordinate_transformation_mode": place, "nearest_mode": "floor"}
            nodes.append(make.make_node("Resize", [name, "", f"factor{index}"], [f"large{index}"], **how))
        names.append(f"large{index}" if index else name)
    nodes.append(make.make_node("Concat", names, ["whole"], axis=1))
    nodes.append(make.make_node("Conv", ["whole", "weights"], ["mixed"]))
    nodes.append(make.make_node("Relu", ["mixed"], ["y"]))
    output = make.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = make.make_graph(nodes, "site", inputs, [output], stored)
    return make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8)


def rows(budget: float) -> Iterator[str]:
    """The row of each site."""
    library, draw, limit = load_patterns(), np.random.default_rng(1), enlarged.MOST_RESULTS
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder, "before.onnx"), Path(folder, "after.onnx")
        for site in SITES:
            onnx.save(model(site), before)
            with mock.patch.object(enlarged, "MOST_RESULTS", site.results):
                done = fuse(before, after, library, Options())
            assert done.verdict is not None and done.verdict.verdict == "equivalent" and done.simplified.simpler
            sessions = {name: open_session(path, 1) for name, path in (("before", before), ("after", after))}
            feeds = {v.name: draw.standard_normal(v.shape).astype(np.float32) for v in sessions["before"].get_inputs()}
            seconds = seconds_of_runs(sessions, feeds, budget, 1)
            found = quartiles(seconds["after"], seconds["before"])
            is_done = "yes" if site.results <= limit * site.channels else "no"
            time = f"{found.ratio:.2f} ({found.least:.2f} to {found.most:.2f})"
            yield f"| {site.images} | {site.channels} | {site.results} | {site.size} | {site.mode} | {time} | {is_done} |"


def main() -> None:
    """Print the rows; write the page."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--budget", type=float, default=2.0, metavar="S", help="seconds for each row")
    arguments.add_argument("--write", action="store_true", help="write enlarged.md")
    given = arguments.parse_args()
    measured = []
    for row in rows(given.budget):
        measured.append(row)
        print(row, flush=True)
    if given.write:
        head = PAGE.format(onnxruntime=version("onnxruntime"), machine=processor())
        (HERE / "enlarged.md").write_text(head + "".join(f"{row}\n" for row in measured), encoding="utf-8")


if __name__ == "__main__":
    main()
