"""All models of a process share what a provider answers; libraries have answers of their own."""

from __future__ import annotations

import os
from pathlib import Path

from onnx_subgraph.custom_ops import using
from onnx_subgraph.rewriting.assumed import Assumed
from onnx_subgraph.rewriting.loadability import CPU, Loadability
from onnx_subgraph.rewriting.shared_loadability import loadability_of

CUDA = "CUDAExecutionProvider"


def test_all_models_share_the_answers_of_a_provider() -> None:
    ours, theirs = loadability_of([CPU], [CUDA])
    assert (type(ours), type(theirs)) == (Loadability, Assumed)
    assert loadability_of([CPU], [CUDA]) == [ours, theirs]


def test_what_is_here_and_what_is_assumed_are_two_things() -> None:
    assert loadability_of([], [CPU]) != loadability_of([CPU])


def test_a_library_has_answers_of_its_own_until_it_is_built_again(tmp_path: Path) -> None:
    library = tmp_path / "operators.so"
    library.touch()
    without = loadability_of([CPU])
    with using(library):
        before = loadability_of([CPU])
        assert before != without and before == loadability_of([CPU])
        os.utime(library, (1, 1))
        assert loadability_of([CPU]) != before
