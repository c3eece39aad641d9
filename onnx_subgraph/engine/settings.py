"""What a user may choose about engines."""

from __future__ import annotations

from dataclasses import dataclass

from onnx_subgraph.paths import StrPath
from onnx_subgraph.values import check_not_negative, check_positive, check_share, check_whole


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Settings of engines. signatures: how many each engine keeps compiled. folder: of the cache on disk, None for none.

    patience: seconds to wait for a compilation; then onnxruntime runs the region until the backend is ready.
    deadline: seconds that a run of a backend may take before it is given up. None: no limit.
    retry: seconds after which a failed backend is tried again, doubled after each failure, up to an hour.
    check: the share of runs whose results are compared with onnxruntime's; runs of `warm` always are.
    strict: raise EngineError instead of falling back to onnxruntime.
    isolated: run backends in separate processes, which may crash.
    Raises UsageError for a number out of its range.
    """

    signatures: int = 8
    folder: StrPath | None = None
    patience: float | None = None
    deadline: float | None = None
    retry: float = 300.0
    check: float = 0.0
    strict: bool = False
    isolated: bool = False

    def __post_init__(self) -> None:
        check_whole(signatures=self.signatures)
        check_positive(signatures=self.signatures, deadline=self.deadline)
        check_not_negative(patience=self.patience, retry=self.retry)
        check_share(check=self.check)
