"""Find the alternatives in the model of a spelling without building the whole model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from onnx_subgraph.language import term as syntax
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.operators import Schema
from onnx_subgraph.proving.instance import Builder
from onnx_subgraph.proving.spelling import Spelling, UnbuildableError


def alternatives_of(pattern: Pattern, spelling: Spelling) -> frozenset[tuple[int, int]]:
    """The alternatives in the instance of this spelling. Raises UnbuildableError."""
    builder = Builder(pattern, spelling)
    builder.compute()
    return frozenset(builder.used)


@dataclass(slots=True)
class Sketch(Builder):
    """A builder that visits terms but makes no nodes and no arrays. wanted: the result of `results_wanted`."""

    wanted: list[str] = field(default_factory=list)

    def alternatives(self) -> frozenset[tuple[int, int]]:
        """The alternatives of the instance, assuming that the example's shapes fit; empty where a sentence excludes it."""
        try:
            for name in self.wanted:
                self.named(name)
            Builder.check_presence(self)
        except UnbuildableError:
            return frozenset()
        return frozenset(self.used)

    def node(
        self, operator: str, inputs: list[str], attributes: dict[str, Any] | None = None, outputs: int = 1, domain: str = ""
    ) -> str:
        return self.fresh(operator)

    def constant(self, value: Any, dtype: str) -> str:
        return self.fresh("k")

    def free(self, name: str) -> str:
        return self.values.setdefault(name, name)

    def results(self, term: syntax.Term, wanted: int) -> list[str]:
        return (
            Builder.results(self, self.alternative(term), wanted)
            if isinstance(term, syntax.Either)
            else [self.value(term)] * wanted
        )

    def value(self, term: syntax.Term) -> str:
        return self.value(term.source) if isinstance(term, syntax.Rearrange) else Builder.value(self, term)

    def argument(self, term: syntax.Term, operator: str) -> str:
        return "" if isinstance(term, syntax.Variable) and term.name == "_" else Builder.argument(self, term, operator)

    def keyword(self, known: Schema, key: str, value: Any, inputs: list[str], attributes: dict[str, Any]) -> None:
        return None
