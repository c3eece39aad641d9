"""Random results of a model are found by running it twice, if it has operators that may be random."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

from onnx_subgraph.verification import fed
from onnx_subgraph.verification.case import Case
from onnx_subgraph.verification.sessions import Session

TEXT = """
<ir_version: 8, opset_import: ["" : 17, "{domain}" : 1]>
g (float[4] x) => (float[4] y) {{ y = {domain}{dot}Relu (x) }}
"""


@pytest.mark.parametrize(("domain", "runs"), [("", 0), ("made.up", 1)])
def test_a_model_is_run_twice_only_if_an_operator_is_unknown(domain: str, runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = TEXT.format(domain=domain, dot="." if domain else "").replace(', "" : 1', "")
    made: list[object] = []

    def run(session: Session, feeds: object) -> dict[str, np.ndarray]:
        made.append(feeds)
        return {"y": np.ones(4, np.float32)}

    monkeypatch.setattr(fed, "run", run)
    case = Case({}, 0, {"x": np.ones(4, np.float32)}, {"y": np.ones(4, np.float32)})
    session = Session(None, ("y",))
    found = fed.fed(ir.from_proto(onnx.parser.parse_model(text)), session, [case], lambda model: session)
    assert isinstance(found, fed.Fed) and len(made) == runs
