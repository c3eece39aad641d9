"""new_pattern(): from places of a model to a pattern file that is proved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir

from onnx_subgraph.authoring.cases import changed, cut_out
from onnx_subgraph.authoring.choosing import Chosen, occurrences
from onnx_subgraph.authoring.examples import examples
from onnx_subgraph.authoring.grounds import grounds
from onnx_subgraph.authoring.optional import Family, family
from onnx_subgraph.clock import Clock, Progress
from onnx_subgraph.errors import UsageError
from onnx_subgraph.evaluator.truth import UnknownError, evaluate
from onnx_subgraph.files.models import load
from onnx_subgraph.language.dump import yaml_text
from onnx_subgraph.language.library import Library
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.language.reading import parse_pattern
from onnx_subgraph.matching.find import find
from onnx_subgraph.mining.atom import Layout
from onnx_subgraph.mining.formula import Formula, number_text, slots
from onnx_subgraph.mining.mine import Occurrence, generalised
from onnx_subgraph.proving import Proof, prove
from onnx_subgraph.proving.given import drawn


@dataclass(frozen=True, slots=True, eq=False)
class Authored:
    """A pattern that was written. formula: its `match`. text: of its file. grounds: what each part of it rests on.

    proof: of the pattern. places: how many it was written from. found: model → how often it matches there.
    """

    pattern: Pattern
    formula: str
    text: str
    grounds: tuple[str, ...]
    proof: Proof
    places: int
    found: Mapping[Path, int]

    @property
    def holds(self) -> bool:
        """Whether it is proved, and found at least wherever it was written from."""
        return not self.proof.failures and sum(self.found.values()) >= self.places


def new_pattern(
    models: Sequence[Path], chosen: Chosen, identity: str, file: Path, library: Library, progress: Progress | None = None
) -> Authored:
    """The pattern of the places that are chosen, proved; `file` is where it will stand, and is not written here.

    Raises UsageError where nothing can be chosen so or the id is taken, PatternError for an id that is none, ModelError for an
    unreadable model.
    """
    taken = next((pattern.file for pattern in library.patterns if pattern.id == identity), None)
    if taken is not None:
        raise UsageError(f"the id {identity!r} is taken by {taken}", hint="give another --id, and name the file after it")
    clock = Clock(progress)
    with clock.stage("mine"):
        places, others = occurrences(models, chosen, library, progress)
    if _changes_nothing(places[0]):
        raise UsageError("these nodes change nothing, and there is nothing to look for", hint="fuse leaves them out by itself")
    best: Authored | None = None
    for tried in dict.fromkeys((family(places, others), Family(places))):
        formula = generalised(tried.places, tried.optional)
        first = tried.places[0]
        for example in examples(formula, first.atoms, _numbers(formula, first), _constants(formula, first)):
            with clock.stage("prove"):
                authored = _authored(models, tried.places, formula, identity, file, example)
            if best is None or len(authored.proof.failures) < len(best.proof.failures):
                best = authored
            if authored.holds:
                return authored
    if best is None:
        raise UsageError(
            "no example can be written: the shapes of its inputs are not known",
            hint="choose other nodes, or export the model with shapes",
        )
    return best


def _changes_nothing(place: Occurrence) -> bool:
    """Whether the nodes only move elements, and give each one where it was, as a Transpose and its inverse do."""
    model = cut_out(place) if all(isinstance(atom.form, Layout) for atom in place.atoms) else None
    if model is None or len(model.graph.input) != 1:
        return False
    feeds = drawn(model)
    try:
        return all(np.array_equal(array, *feeds.values()) for array in evaluate(model, feeds).values())
    except UnknownError:
        return False


def _authored(
    models: Sequence[Path],
    places: Sequence[Occurrence],
    formula: Formula,
    identity: str,
    file: Path,
    example: Mapping[str, object],
) -> Authored:
    known = grounds(places, formula)
    content = _content(places, formula, identity, example)
    pattern = parse_pattern(yaml_text(content), str(file))
    content |= _cases(places, pattern)
    text = "".join(f"# {_in_one_line(line)}\n" for line in known) + yaml_text(content)
    pattern = parse_pattern(text, str(file))
    return Authored(pattern, str(formula), text, known, prove(pattern), len(places), {m: _count(m, pattern) for m in models})


def _content(places: Sequence[Occurrence], formula: Formula, identity: str, example: Mapping[str, object]) -> dict[str, object]:
    operators = dict.fromkeys(node.op_type for node in places[0].nodes)
    content: dict[str, object] = {
        "id": identity,
        "summary": f"{', '.join(operators)} of {places[0].model.name}",
        "match": f"{formula}\n",
    }
    if formula.numbers:
        content["where"] = [_stands_for_a_number(formula, name) for name in formula.numbers]
    if len(formula.results) > 1:
        content["results"] = list(formula.results)
    return content | {"example": dict(example)}


def _stands_for_a_number(formula: Formula, name: str) -> str:
    """The sentence about a named number: that of a sum or product is whatever is left over of it."""
    said = f"{name}.value != 0" if formula.numbers[name][1] < 0 else f"{name}.is_scalar and {name}.is_constant"
    return f"{name} is None or {said}" if name in formula.optional else said


def _cases(places: Sequence[Occurrence], pattern: Pattern) -> dict[str, object]:
    """A place of each form as a model that must fuse, and the first with another number as a model that must not."""
    forms: dict[tuple[int, ...], Occurrence] = {}
    for place in places:
        forms.setdefault(tuple(len(atom.operands) if atom.nodes else 0 for atom in place.atoms), place)
    cut = [(place, model) for place in forms.values() if (model := cut_out(place)) is not None and _matches(model, pattern)]
    if not cut:
        return {}
    found: dict[str, object] = {}
    for number, other in changed(cut[0][1]):
        if not _matches(other, pattern):
            why = f"{number_text(number)} is a part of the formula, and {number_text(1.5 * number)} is another number"
            found["keeps"] = [{"why": why, "model": _text(other)}]
            break
    return found | {
        "fuses": [{"why": f"as in {place.model.name} at {place.name}", "model": _text(model)} for place, model in cut]
    }


def _in_one_line(text: str) -> str:
    """Text for a comment of a file: names of nodes may have line breaks and control characters."""
    return "".join(character if character.isprintable() else " " for character in text)


def _text(model: onnx.ModelProto) -> str:
    return "".join(f"{line.rstrip()}\n" for line in onnx.printer.to_text(model).strip().splitlines())


def _matches(model: onnx.ModelProto, pattern: Pattern) -> bool:
    """Whether the pattern matches in a model, as it is after its text was read."""
    try:
        read = ir.from_proto(onnx.parser.parse_model(_text(model)))
    except onnx.parser.ParseError:  # a number or a name that the text form can't say
        return False
    return bool(find(read, [pattern]).matches)


def _count(path: Path, pattern: Pattern) -> int:
    return len(find(load(path), [pattern]).matches)


def _numbers(formula: Formula, place: Occurrence) -> dict[tuple[int, int], float]:
    values = {slot: n for i, atom in enumerate(place.in_order) for slot, n in slots(i, atom)}
    return {slot: values[slot] for slot in formula.numbers.values()}


def _constants(formula: Formula, place: Occurrence) -> list[str]:
    constant = {o.value for atom in place.atoms for o in atom.operands if o.constant}
    return [name for name, value in formula.values.items() if value in constant]
