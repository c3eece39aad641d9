"""The laws of the commands hold on random graphs, and planted defects break them.

`benchmarks/commands.py` tries thousands.
"""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

from onnx_subgraph.files.models import save
from onnx_subgraph.session.static import StaticSession
from tests.soundness import laws, trial

ENOUGH = 2
"""Graphs for each law that have what it is about; one without --thorough …"""
MOST = 20
"""… of so many at most."""


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNX_SUBGRAPH_CACHE", str(tmp_path_factory.mktemp("cache")))


def folder(parent: Path, number: int) -> Path:
    made = parent / str(number)
    made.mkdir()
    return made


@pytest.mark.parametrize("law", laws.LAWS)
def test_a_law_holds(law: str, tmp_path: Path, thorough: bool) -> None:
    seen, enough = 0, ENOUGH if thorough else 1
    for number in range(MOST):
        held = laws.held(law, trial.drawn(number, 0), folder(tmp_path, number))
        assert not held.broken
        seen += bool(held.seen)
        if seen == enough and not thorough:
            return
    assert seen >= enough, "too few graphs have what the law is about"


def lose_an_output(patch: pytest.MonkeyPatch) -> None:
    def without(model: ir.Model, *paths: Path) -> None:
        model.graph.outputs.pop()
        save(model, *paths)

    patch.setattr("onnx_subgraph.partitioning.inline.save", without)


def replay_anything(patch: pytest.MonkeyPatch) -> None:
    first: list[object] = []
    run = StaticSession.run

    def again(self: StaticSession, *arguments: object, **keywords: object) -> object:
        first[:] = first or [run(self, *arguments, **keywords)]  # type: ignore[arg-type]
        return first[0]

    patch.setattr(StaticSession, "run", again)


def keep_every_function(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("onnx_subgraph.partitioning.inline._inlined", lambda *_: 0)
    patch.setattr("onnx_subgraph.partitioning.inline.drop_unused", lambda *_, **__: None)


def fail(patch: pytest.MonkeyPatch) -> None:
    def raises(*_: object) -> None:
        raise RuntimeError("planted")

    patch.setattr("onnx_subgraph.authoring.author.examples", raises)


DEFECTS = {
    "partition reference": (lose_an_output, "is missing"),
    "static session": (replay_anything, "StaticSession"),
    "inline": (keep_every_function, "functions are left"),
    "mine": (fail, "RuntimeError: planted"),
}


@pytest.mark.parametrize("law", DEFECTS)
def test_a_planted_defect_breaks_a_law(law: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    defect, words = DEFECTS[law]
    defect(monkeypatch)
    tried = (laws.held(law, trial.drawn(number, 0), folder(tmp_path, number)) for number in range(10))
    assert any(words in held.broken for held in tried)
