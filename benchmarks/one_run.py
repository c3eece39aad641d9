"""Runs a model once in onnxruntime as it comes: `python benchmarks/one_run.py MODEL`.

No verification can take less time or memory than this.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import onnxruntime

from onnx_subgraph.files.models import load
from onnx_subgraph.inputs.feeds import required_inputs
from onnx_subgraph.inputs.refusal import Refusals
from onnx_subgraph.inputs.sizes import FIRST, fixed_by
from onnx_subgraph.verification.search import first_that_runs, trials
from onnx_subgraph.verification.sessions import Failure, Session


def main() -> int:
    """Open the model and run it on drawn inputs. Returns 1 where it does not run."""
    path = Path(sys.argv[1])
    model = load(path)
    handle = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    session = Session(handle, tuple(output.name for output in handle.get_outputs()))
    refusals = Refusals(model, frozenset(fixed_by(required_inputs(model), {})))
    found = first_that_runs(model, session, refusals.guided(trials(model, {}, FIRST)), refusals, 0)
    if isinstance(found, Failure):
        print(found.message, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
