"""Read `formulas.yaml`: the formulas that the patterns of a pack share.

A key is a formula with its parameters, `silu(x)`; the value has its lines, with the result in the last one. The file is in the
folder of the pattern files or in the folder above, so a pack can have one file for all its groups. Built-in formulas are always
available. If several formulas have the same name, the nearest file wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from itertools import chain
from pathlib import Path

from onnx_subgraph.errors import PatternError
from onnx_subgraph.language import spelling
from onnx_subgraph.language.formula import Formula, Formulas, uses
from onnx_subgraph.language.shared import fields_of
from onnx_subgraph.language.source import Data, Fields, Kind, Scalar, content_of, read_file, read_text
from onnx_subgraph.language.syntax import RESERVED, read_formula
from onnx_subgraph.language.term import Apply, Variable, walk

FORMULA_FILE = "formulas.yaml"

_KEY = re.compile(r"\s*(\w+)\s*\(\s*(\w+(?:\s*,\s*\w+)*)?\s*\)\s*")
_CALL = re.compile(r"(?<![\w.])([a-z_]\w*)\s*\(")
_KIND = Kind(
    PatternError,
    give="give a file of formulas",
    begin="start with `name(x): Operator(x)`",
    one="one file holds the formulas of a pack",
)


def formulas_for(path: Path) -> Formulas:
    """The formulas that the pattern file `path` may use. Raises PatternError, with the place."""
    found: dict[str, Formula] = dict(built_in_formulas())
    for file in formula_files(path):
        found |= read_formulas(file, found)
    return found


def formula_files(path: Path) -> tuple[Path, ...]:
    """The formula files for the pattern file `path`, without the built-in one; the nearest last."""
    folder = path.absolute().parent
    near = (place / FORMULA_FILE for place in (folder.parent, folder) if place != built_in_folder())
    return tuple(file for file in near if file.is_file())


def formula_contents(files: Iterable[Path]) -> tuple[tuple[Path, bytes], ...]:
    """The formula files (`formula_files`) of all these pattern files, with their contents."""
    one_of = {file.absolute().parent: file for file in files}
    near = chain.from_iterable(map(formula_files, one_of.values()))
    return tuple((file, content_of(file, _KIND)) for file in dict.fromkeys(near))


def used_formulas(path: Path, identity: str) -> tuple[Formula, ...]:
    """The formulas that a pattern of the file `path` uses, directly or through other formulas, in the order of definition."""
    known = formulas_for(path)
    data = fields_of(path, identity).get("match")
    found: dict[str, None] = {}
    pending = [data.text] if isinstance(data, Scalar) else []
    while pending:
        for name in _CALL.findall(pending.pop()):
            if name in known and name not in found:
                found[name] = None
                pending.append(known[name].text)
    return tuple(formula for name, formula in known.items() if name in found)


@cache
def built_in_folder() -> Path | None:
    """The folder of the built-in pack: inside the package in a wheel, beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    return next((f for f in (package / "patterns", package.parent / "patterns") if f.is_dir()), None)


@cache
def built_in_formulas() -> Formulas:
    """The formulas of the built-in pack."""
    folder = built_in_folder()
    return {} if folder is None or not (folder / FORMULA_FILE).is_file() else read_formulas(folder / FORMULA_FILE, {})


def read_formulas(path: Path, known: Formulas) -> dict[str, Formula]:
    """The formulas of a file. Each may use `known` ones and those above it. Raises PatternError, with the place."""
    return _formulas(read_file(path, _KIND), known)


def parse_formulas(text: str, file: str = FORMULA_FILE) -> dict[str, Formula]:
    """The formulas in `text`. Raises PatternError, with the place."""
    return _formulas(read_text(text, file, _KIND), {})


def _formulas(fields: Fields, known: Formulas) -> dict[str, Formula]:
    found: dict[str, Formula] = {}
    for key, data in fields.entries:
        formula = _formula(key, data, {**known, **found})
        if formula.name in found:
            raise PatternError(f"`{formula.name}` is defined twice", span=key.span, hint="give one of the two another name")
        found[formula.name] = formula
    return found


def _formula(key: Scalar, data: Data, known: Formulas) -> Formula:
    head = _KEY.fullmatch(key.text)
    if head is None:
        hint = "write `name(x, y): …`; a pattern stands in a file of another name"
        raise PatternError(f"`{key.text}` is not a formula with its parameters", span=key.span, hint=hint)
    name, parameters = head[1], tuple(p.strip() for p in (head[2] or "").split(",") if p.strip())
    for word in (name, *parameters):
        if not word.isidentifier() or word in RESERVED or not (word[0].islower() or word[0] == "_") or word == "_":
            hint = f"a name is lower-case and none of {', '.join(sorted(RESERVED))}"
            raise PatternError(f"`{word}` can't be the name of a formula or a parameter", span=key.span, hint=hint)
    if len(set(parameters)) < len(parameters):
        raise PatternError(f"`{key.text}` has a parameter twice", span=key.span, hint="give one of the two another name")
    lines, results = read_formula(data, name, known)
    text = data.text.rstrip("\n") if isinstance(data, Scalar) else ""
    formula = Formula(name, parameters, lines, results, text, key.span)
    _check(formula, key)
    return formula


def _check(formula: Formula, key: Scalar) -> None:
    known = {*formula.parameters, *(n for line in formula.lines for n in line.names)}
    for part in (t for whole in formula.terms for t in walk(whole)):
        if isinstance(part, Variable) and part.name not in known and part.name != "_":
            wider = f"{formula.name}({', '.join((*formula.parameters, part.name))})"
            hint = spelling.hint(part.name, known, f"make it a parameter: `{wider}`")
            raise PatternError(f"`{part.name}` is no parameter of `{formula}`", span=part.span, hint=hint)
        if isinstance(part, Apply) and (part.capture or part.rest):
            hint = "capture operators and attributes in the pattern itself"
            raise PatternError("a formula captures nothing", span=part.span, hint=hint)
    used = uses(formula)
    for name in sorted(known - {"_"}):
        if not used[name]:
            raise PatternError(f"`{formula}` does not use `{name}`", span=key.span, hint="use it, or leave it out")
