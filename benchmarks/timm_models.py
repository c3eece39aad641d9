"""Exports image networks of timm with random weights, fuses them, and times the results. Writes `benchmarks/timm_models.md`.

    pip install timm torch torchvision onnxscript
    python benchmarks/timm_models.py [--only 'repv*'] [--exporter dynamo] [--models DIR] [--rows DIR] [--budget 2] [--write]

`fuse` runs with its defaults, including verification, on the unchanged exports with a symbolic batch. The original and the fused
model run in turn in onnxruntime with all its optimisations, on one image and one thread. Times are processor time.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median

import numpy as np
import workers
from exported_models import EXPORTERS, Task, export_options, fused_and_timed, line
from rows import kept_row, tell
from taking_turns import Ratio

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from onnx_subgraph.timing.tuning import processor  # noqa: E402

LIMIT = 600.0
"""Seconds for one network, everything included."""
NAMES = (
    *("beitv2_base_patch16_224", "caformer_s18", "cait_xxs24_224", "coatnet_nano_rw_224", "convnext_atto", "convnextv2_atto"),
    *("crossvit_tiny_240", "cspdarknet53", "darknet53", "davit_tiny", "deit3_small_patch16_224", "densenet121", "dla34"),
    *("edgenext_xx_small", "efficientformer_l1", "efficientformerv2_s0", "efficientnet_b0", "ese_vovnet19b_dw", "fasternet_t0"),
    *("fastvit_t8", "fbnetc_100", "focalnet_tiny_srf", "gcvit_xxtiny", "gernet_s", "ghostnet_100", "ghostnetv2_100"),
    *("ghostnetv3_100", "gmlp_ti16_224", "hardcorenas_a", "hiera_tiny_224", "hrnet_w18_small", "inception_next_atto"),
    *("inception_v3", "lcnet_050", "levit_128s", "mambaout_femto", "mixer_s32_224", "mixnet_s", "mnasnet_050"),
    *("mobilenetv4_conv_small", "mobilenetv4_hybrid_medium", "mobileone_s1", "mobilevitv2_050", "mvitv2_tiny", "nextvit_small"),
    *("nfnet_l0", "pit_ti_224", "poolformerv2_s12", "regnety_002", "repghostnet_050", "repvgg_a0", "repvit_m0_9"),
    *("res2net50_14w_8s", "resmlp_12_224", "resnetv2_50", "rexnet_100", "selecsls42b", "seresnet18", "shvit_s1", "skresnet18"),
    *("starnet_s1", "swiftformer_xs", "tiny_vit_5m_224", "tinynet_e", "twins_svt_small", "visformer_tiny"),
    *("vit_tiny_patch16_224", "xception41", "xcit_nano_12_p16_224"),
)
"""One network each of many families of timm."""
BRANCHED = frozenset(("fastvit_t8", "ghostnetv3_100", "mobileone_s1", "repghostnet_050", "repvgg_a0", "repvit_m0_9"))
"""Those that timm can rewrite itself so that parallel branches become one convolution. They are exported with the branches."""
HEAD = """\
# Image networks of timm

Made by `python benchmarks/timm_models.py --write` with timm {timm}, torch {torch} and onnxruntime {onnxruntime}, on an
{processor}. Each network has random weights and a symbolic batch, and comes from
torch's exporter {exporter}. *time* is that of the fused model as a share of the original's: the median, with the least
and most of parts of the runs, on one image and one thread. *undone*: fusions that verification could not show to be
right on these weights.

**{equivalent} of {networks} are equivalent; {before:,} nodes became {after:,}. The median of the times is {typical:.2f};
above 1.02: {slower}. {branched}**

| network | nodes | fusions | undone | verdict | time |
|---|---:|---:|---:|---|---:|
"""


@dataclass(frozen=True)
class Row:
    """What became of a network. ratios: "fused" → its time by that of the original."""

    name: str
    before: int = 0
    after: int = 0
    fusions: int = 0
    undone: int = 0
    verdict: str = ""
    ratios: dict[str, Ratio] = field(default_factory=dict)

    def __str__(self) -> str:
        cells = (self.name, f"{self.before} → {self.after}", str(self.fusions), self.undone, self.verdict)
        return line(*cells, time=self.ratios.get("fused"))


def measure(task: Task) -> Row:
    """Export, fuse and time one network."""
    shape = _exported(task)
    result, time = fused_and_timed(task, {"image": np.random.default_rng(0).standard_normal(shape).astype(np.float32)})
    assert result.verdict is not None
    counts = (result.nodes_before, result.nodes_after, len(result.rewrites), len(result.undone))
    return Row(task.name, *counts, result.verdict.verdict, {} if time is None else {"fused": time})


def _exported(task: Task) -> tuple[int, ...]:
    """Make the network and write its model, if that is not there; the shape of one image."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    import timm
    import torch

    torch.manual_seed(0)
    network = timm.create_model(task.name, pretrained=False).eval()
    shape = (1, *network.default_cfg["input_size"])
    if task.model.exists():
        return shape
    for module in network.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and module.affine:
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
            module.weight.data.uniform_(0.5, 1.5)
            module.bias.data.normal_(0, 0.1)
    known = export_options(task.exporter) | {"input_names": ["image"], "output_names": ["result"]}
    if task.exporter == "TorchScript":
        known["dynamic_axes"] = {"image": {0: "batch"}}
    else:
        known["dynamic_shapes"] = ({0: torch.export.Dim("batch")},)
    images = torch.randn(2, *shape[1:])
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        torch.onnx.export(network, (images,), str(task.model), **known)
    return shape


def head(measured: Sequence[Row], exporter: str) -> str:
    """The text before the rows."""
    times = [row.ratios["fused"].ratio for row in measured if row.ratios]
    branched = [row.ratios["fused"].ratio for row in measured if row.ratios and row.name in BRANCHED]
    return HEAD.format(
        processor=processor(),
        exporter=exporter,
        equivalent=sum(row.verdict == "equivalent" for row in measured),
        networks=len(measured),
        before=sum(row.before for row in measured),
        after=sum(row.after for row in measured),
        typical=median(times) if times else float("nan"),
        branched=f"Networks with parallel branches take {min(branched):.2f} to {max(branched):.2f}." if branched else "",
        slower=sum(time > 1.02 for time in times),
        **{name: version(name).partition("+")[0] for name in ("timm", "torch", "onnxruntime")},
    )


def main() -> int:
    """Export, fuse and time; return 1 if `fuse` fails or a model is not equivalent."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", default="*", metavar="GLOB", help="the networks")
    arguments.add_argument("--exporter", choices=list(EXPORTERS), default="TorchScript")
    arguments.add_argument("--models", type=Path, metavar="DIR", help="a folder that keeps the exported models")
    arguments.add_argument(
        "--rows", type=Path, metavar="DIR", help="a folder that keeps the results; a network in it is not run again"
    )
    arguments.add_argument("--budget", type=float, default=2.0, metavar="SECONDS", help="of timing, for one network (2)")
    arguments.add_argument("--write", action="store_true", help="write timm_models.md")
    given = arguments.parse_args()
    measured: dict[str, Row] = {}
    with tempfile.TemporaryDirectory() as folder:
        models, rows = given.models or Path(folder, "models"), given.rows or Path(folder, "rows")
        models.mkdir(parents=True, exist_ok=True)
        rows.mkdir(parents=True, exist_ok=True)
        names = fnmatch.filter(NAMES, given.only)
        measured = {name: kept_row(Row, kept) for name in names if (kept := rows / f"{name}.json").exists()}
        tasks = [
            Task(name, given.exporter, models / f"{name}.{given.exporter}.onnx", given.budget)
            for name in names
            if name not in measured
        ]
        for outcome in workers.run(measure, tasks, jobs=1, limit=LIMIT):
            row = outcome.result or Row(outcome.task.name, verdict=f"failed: {outcome.failure.strip().splitlines()[-1][:160]}")
            measured[row.name] = row
            if outcome.result is not None:
                (rows / f"{row.name}.json").write_text(json.dumps(asdict(row)), encoding="utf-8")
            print(row, flush=True)
    found = [measured[name] for name in names]
    tell(head(found, given.exporter), map(str, found), HERE / "timm_models.md" if given.write else None)
    return int(any(row.verdict != "equivalent" for row in found))


if __name__ == "__main__":
    sys.exit(main())
