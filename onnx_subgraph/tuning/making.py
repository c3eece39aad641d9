"""Build variants of a model in a temporary folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from onnx_subgraph.backends.registry import find_backend
from onnx_subgraph.clock import Progress
from onnx_subgraph.language.library import Library
from onnx_subgraph.options import Options, in_this_way
from onnx_subgraph.result import FuseResult
from onnx_subgraph.targets import FLOAT32
from onnx_subgraph.timing.tuning import Way
from onnx_subgraph.tuning.engines import fuse_with_engines
from onnx_subgraph.tuning.parts import Parts
from onnx_subgraph.verification.reference import Reference
from onnx_subgraph.verification.rounding import Truth

MOST = 16
"""The most patterns that are left out one by one, those with the most fusions first."""
OTHER_TARGETS = {"onnxruntime": ("standard",), "native": ("onnxruntime",)}
"""Target → other targets whose operators run in the same sessions."""


@dataclass(frozen=True, slots=True)
class Made:
    """A variant of the model. what: how it differs from the default, in words."""

    what: str
    way: Way
    path: Path
    result: FuseResult

    @property
    def differs(self) -> bool:
        """Whether it differs from the original."""
        return self.result.output is not None and not self.result.unchanged

    @property
    def has_engines(self) -> bool:
        """Whether it has engines of a backend."""
        return self.result.engines is not None and self.result.engines.count > 0


class Maker:
    """Builds variants of one model: the user's options, with another way to fuse."""

    def __init__(self, model: Path, library: Library, options: Options, folder: Path) -> None:
        self.model = model
        self.library = library
        self._options = replace(options, dry_run=False, strict=False, sites=False, bench=False, compare_ort=False)
        self._folder = folder
        self._count = 0

    @cached_property
    def truth(self) -> Truth:
        """The original in float64."""
        options = self._options
        return Truth(
            Reference(
                self.model,
                seed=options.seed,
                shapes=options.shapes,
                inputs=options.inputs,
                fixed=options.fixed,
                constant_initializers=options.constant_initializers,
            )
        )

    def make(self, what: str, way: Way, *, verified: bool = False) -> Made:
        """Build one variant. verified: verify it if the user's options say so; else never."""
        self._count += 1
        path = self._folder / f"{self._count}.onnx"
        options = in_this_way(self._options, way)
        options = replace(options, verify=options.verify and verified)
        return Made(what, way, path, fuse_with_engines(self.model, path, self.library, options, way))

    def alternatives(self, base: Made, tell: Progress) -> Iterator[Made]:
        """The variants whose operators differ from those of `base`."""
        for what, way in self._ways(base) if base.differs else ():
            tell(f"make it {what}")
            made = self.make(what, way)
            if made.result.operators_after != base.result.operators_after:
                yield made

    def by_engines(self, base: Made, backends: Sequence[str], accuracy: float | None, tell: Progress) -> Iterator[Made]:
        """The original model with engines. They are verified, because regions that a backend runs wrongly must be left out.

        accuracy: if given, the backends are tried in lower precision too; for a part of the model if not for all of it.
        """
        plain = replace(self.nothing(base), backend="")
        for name in backends:
            tell(f"make engines of {name}")
            yield self.make(f"by {name}", replace(plain, backend=name), verified=True)
            if accuracy is None:
                continue
            for coarse in find_backend(name).coarser:
                tell(f"make engines of {coarse}")
                way = replace(plain, backend=coarse, accuracy=accuracy)
                yield (whole := self.make(f"by {coarse}", way, verified=True))
                if whole.has_engines:
                    continue
                parts = Parts(self.truth, self.make("as it is", plain).path, coarse, name, self._options.shapes)
                part = parts.within(accuracy, tell)
                if part is not None:
                    what = f"by {coarse} for {part.nodes} of {part.of} nodes, and {name} for the others: {away(part.error)}"
                    way = replace(way, backend=f"{coarse};{name}", results=part.results)
                    yield self.make(what, way, verified=True)

    def _ways(self, base: Made) -> Iterator[tuple[str, Way]]:
        if base.way.prefer == "speed":
            yield "with all fusions, whatever the table of costs says", replace(base.way, prefer="fusion")
        for target in OTHER_TARGETS.get(base.way.target, ()):
            yield f"for the target {target}", replace(base.way, target=target, numerics=FLOAT32)
        used = Counter(rewrite.pattern for rewrite in base.result.rewrites)
        for pattern, _ in used.most_common(MOST):
            yield f"without {pattern}", replace(base.way, skip=(*base.way.skip, pattern))

    def together(self, base: Made, taken: list[Made]) -> Made:
        """One model with all the changes in `taken`."""
        if not taken:
            return base
        changes: dict[str, Any] = {}
        for made in taken:
            changes |= {name: value for name, value in asdict(made.way).items() if value != getattr(base.way, name)}
        changes["skip"] = tuple(dict.fromkeys(pattern for made in (base, *taken) for pattern in made.way.skip))
        return self.make("together", replace(base.way, **changes))

    def nothing(self, base: Made) -> Way:
        """The way that fuses nothing."""
        return replace(base.way, skip=tuple(pattern.id for pattern in self.library.patterns))


def away(error: float) -> str:
    """The error of the outputs in words."""
    return f"outputs within {error:.1e} of float64"
