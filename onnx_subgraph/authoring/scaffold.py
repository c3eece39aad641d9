"""A pack to begin with: a Python package of patterns that proves, installs, and is known by its name."""

from __future__ import annotations

import keyword
import re
import shutil
import sys
import sysconfig
import tempfile
from importlib.machinery import PathFinder
from pathlib import Path

from onnx_subgraph.errors import UsageError

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
"""A name such as my-pack: words of small letters and digits, with `-` between them."""
TAKEN = {"onnx_subgraph", *keyword.kwlist, *sys.stdlib_module_names}
"""Names that a package can't have: its import would fail, or give something else."""

PROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "0.1.0"
description = "Patterns for onnx-subgraph"
requires-python = ">=3.10"

[project.entry-points."onnx_subgraph.packs"]
{name} = "{package}"

[tool.setuptools.package-data]
{package} = ["*.yaml", "*/*.yaml"]
"""
PACK = """\
name: {name}
version: 0.1.0
"""
PATTERN = """\
id: squared-relu
summary: Relu, squared (Primer, https://arxiv.org/abs/2109.08668)
match: y = Relu(x) ** 2
example: {{x: "float32[2, 8]"}}
"""
README = """\
# {name}

Patterns for onnx-subgraph. `{package}/activation/squared_relu.yaml` is one to begin with.

    onnx-subgraph test-patterns --patterns {package} --watch          # proves what you save
    onnx-subgraph explain model.onnx squared-relu --patterns {package}  # why it matches, or does not
    onnx-subgraph fuse model.onnx --patterns {package} --target function

    pip install .                                                     # then --patterns {name}
"""
FILES = {
    "pyproject.toml": PROJECT,
    "README.md": README,
    "{package}/__init__.py": '"""Patterns for onnx-subgraph."""\n',
    "{package}/pack.yaml": PACK,
    "{package}/activation/squared_relu.yaml": PATTERN,
}
"""File → content, in which {name} and {package} stand for the name of the pack and of its Python package."""


def write_pack(folder: Path, name: str) -> tuple[Path, ...]:
    """Write a pack of that name; the files. `folder` appears whole or not at all, and must not be there, or be empty.

    Raises UsageError for a name that can't be, for a folder that has something in it, and for one in a folder that is not there;
    OSError where it can't be written.
    """
    if not NAME.fullmatch(name):
        hint = "use small letters, digits and -, as in my-pack; --name gives another name than the folder's"
        raise UsageError(f"{name!r} can't be the name of a pack", hint=hint)
    package = name.replace("-", "_")
    if package in TAKEN:
        raise UsageError(
            f"{package} has a meaning in Python, so the pack can't be imported", hint="give another name with --name"
        )
    if PathFinder.find_spec(package, [sysconfig.get_path(kind) for kind in ("purelib", "platlib")]) is not None:
        raise UsageError(
            f"{package} is a package that is installed here, and pip would replace it", hint="give another name with --name"
        )
    if not (parent := folder.absolute().parent).is_dir():
        raise UsageError(f"{folder} can't be written: there is no folder {parent}", hint="make it first, or name another folder")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is there already, and is not overwritten", hint="name a new folder")
    words = {"name": name, "package": package}
    staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.absolute().parent))
    try:
        files = {Path(path.format(**words)): content.format(**words) for path, content in FILES.items()}
        for path, content in files.items():
            (staging / path).parent.mkdir(parents=True, exist_ok=True)
            (staging / path).write_text(content, encoding="utf-8")
        staging.chmod(0o755)
        if folder.exists():
            folder.rmdir()
        staging.rename(folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return tuple(folder / path for path in files)
