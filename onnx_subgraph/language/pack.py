"""Read a pack's `pack.yaml`: its name, domain and requirements."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from onnx_subgraph.errors import PatternError
from onnx_subgraph.language.example import read_scalar
from onnx_subgraph.language.reading import check_keys
from onnx_subgraph.language.source import Data, Fields, Items, Scalar, read_file

PACK_FILE = "pack.yaml"
_COMPARISON = re.compile(r"([<>]=?|[=!]=|~=)\s*(\d+(?:\.\d+)*)")
_PARTS = 8
"""Maximum number of components of a version that are compared."""
PACK_KEYS = ("name", "version", "domain", "onnxruntime", "opsets", "shapes", "libraries")


@dataclass(frozen=True, slots=True)
class Pack:
    """The contents of a `pack.yaml`.

    domain: of the operators that the pack provides, "" where it provides none. onnxruntime: a version specifier, `>=1.22`.
    opsets: domain → required minimum opset. shapes: operator of the domain → standard operator with the same shape rule.
    libraries: the custom-op libraries that it provides.
    """

    name: str
    path: Path
    version: str = ""
    domain: str = ""
    onnxruntime: str = ""
    opsets: dict[str, int] = field(default_factory=dict, hash=False)
    shapes: dict[str, str] = field(default_factory=dict, hash=False)
    libraries: tuple[Path, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()

    def takes(self, version: str) -> bool:
        """Whether the pack supports this version of onnxruntime."""
        return all(_holds(part, version) for part in self.onnxruntime.split(",") if part.strip())


def read_pack(path: Path) -> Pack:
    """Read the `pack.yaml` in the folder `path`. Raises PatternError, with the place."""
    fields = read_file(path / PACK_FILE)
    check_keys(fields, PACK_KEYS, "a pack")
    texts = {key: _text(fields, key) for key in ("name", "version", "domain", "onnxruntime")}
    name = texts["name"]
    if name is None or not name.text:
        raise PatternError("`name` is missing", span=fields.span, hint=f"add `name: {path.absolute().name}`")
    specifier = texts["onnxruntime"]
    if specifier is not None and re.fullmatch(r"\s*(([<>]=?|[=!]=|~=)\s*\d+(\.\d+)*\s*(,\s*|$))+", specifier.text) is None:
        raise PatternError("not a version specifier", span=specifier.span, hint='write `onnxruntime: ">=1.22"`')
    return Pack(
        name=name.text,
        path=path,
        opsets=_opsets(fields.get("opsets")),
        shapes=_shapes(fields.get("shapes"), "domain" in fields.keys),
        libraries=_libraries(fields.get("libraries"), path),
        **{key: scalar.text for key, scalar in texts.items() if scalar is not None and key != "name"},
    )


def _holds(comparison: str, version: str) -> bool:
    """Whether a version satisfies a comparison, as `>=1.22`. Missing components are 0."""
    found = _COMPARISON.fullmatch(comparison.strip())
    assert found is not None, comparison
    sign, wanted = found[1], _numbers(found[2])
    have = _numbers(version)
    if sign == "~=":
        return have >= wanted and have[: found[2].count(".")] == wanted[: found[2].count(".")]
    return {
        "==": have == wanted,
        "!=": have != wanted,
        ">=": have >= wanted,
        "<=": have <= wanted,
        ">": have > wanted,
        "<": have < wanted,
    }[sign]


def _numbers(version: str) -> tuple[int, ...]:
    leading = re.match(r"\d+(\.\d+)*", version)
    numbers = tuple(map(int, leading[0].split("."))) if leading is not None else ()
    return (*numbers, *(0,) * (_PARTS - len(numbers)))


def _text(fields: Fields, key: str) -> Scalar | None:
    data = fields.get(key)
    if data is not None and not isinstance(data, Scalar):
        raise PatternError(f"`{key}` is not text", span=data.span, hint=f"write `{key}: …` in one line")
    return data


def _opsets(data: Data | None) -> dict[str, int]:
    if data is None:
        return {}
    if not isinstance(data, Fields):
        raise PatternError("`opsets` is not a mapping", span=data.span, hint='write `opsets: {"": 17}`')
    opsets: dict[str, int] = {}
    for key, value in data.entries:
        number = read_scalar(value) if isinstance(value, Scalar) else None
        if not isinstance(number, int) or number < 1:
            raise PatternError("an opset is a number", span=value.span, hint='write `opsets: {"": 17}`')
        opsets["" if key.text == "ai.onnx" else key.text] = number
    return opsets


def _shapes(data: Data | None, has_domain: bool) -> dict[str, str]:
    usage = "write `shapes: {ConvBN: Conv}`"
    if data is None:
        return {}
    if not has_domain:
        raise PatternError("`shapes` are of operators of the pack's domain", span=data.span, hint="add `domain: …`")
    if not isinstance(data, Fields):
        raise PatternError("`shapes` is not a mapping", span=data.span, hint=usage)
    shapes: dict[str, str] = {}
    for key, value in data.entries:
        if not isinstance(value, Scalar) or not value.text:
            raise PatternError("not the name of an operator of the standard", span=value.span, hint=usage)
        shapes[key.text] = value.text
    return shapes


def _libraries(data: Data | None, folder: Path) -> tuple[Path, ...]:
    if data is None:
        return ()
    items = data.items if isinstance(data, Items) else ()
    if not isinstance(data, Items) or not all(isinstance(item, Scalar) for item in items):
        raise PatternError("`libraries` is not a list of files", span=data.span, hint="write `libraries: [libmy_ops.so]`")
    return tuple(folder / item.text for item in items if isinstance(item, Scalar))
