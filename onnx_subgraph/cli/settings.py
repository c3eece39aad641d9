"""The settings of a project: options in `onnx-subgraph.toml`, or in `pyproject.toml` under `[tool.onnx-subgraph]`.

A key is the name of an option without its dashes. A key at the top applies to all commands with that option, a key in the table
of a command to that command. The command line overrides both. An option also overrides those that it excludes (`EXCLUSIVE`).
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from onnx_subgraph.backends.names import is_file_name
from onnx_subgraph.errors import UsageError

OWN, PROJECT = "onnx-subgraph.toml", "pyproject.toml"
"""The file names. In one folder the first takes precedence over the second."""
TOOL = "onnx-subgraph"
CODE = ("custom-op-library", "executor")
"""Options that load or fetch code. Only the command line, or a file that it names, may set them."""
PACK = "pack.yaml"
SETTINGS = "onnx_subgraph.settings"
"""Key in `Context.meta`: the path of the settings file."""
EXCLUSIVE: tuple[tuple[str, str], ...] = (
    ("output", "output_dir"),
    ("quiet", "verbose"),
    ("expect", "write_expect"),
    ("jobs", "executor"),
    *(("no_verify", other) for other in ("strict", "sites", "measure", "accuracy")),
    *(("bench", other) for other in ("dry_run", "jobs", "executor")),
    *(("tune", other) for other in ("jobs", "executor")),
    *(("sites_only", other) for other in ("tune", "no_verify", "bench", "compare_ort", "inputs")),
)
"""Pairs of parameters that exclude each other. The one with precedence removes the other, instead of an error."""

Table = Mapping[str, Any]
Get = Callable[[str], click.Command | None]


def settings_file(folder: Path) -> Path | None:
    """The nearest settings file, in a folder or above it; None if there is none. Raises UsageError where one can't be read."""
    for place in (folder, *folder.parents):
        if os.path.lexists(place / OWN):  # a folder or a dangling link is a mistake, which `_read` names
            return place / OWN
        if (place / PROJECT).is_file() and _is_meant(place / PROJECT):
            return place / PROJECT
    return None


def source_of(context: click.Context, parameter: str) -> Path | None:
    """The settings file that the value of a parameter comes from; None if it comes from elsewhere."""
    path: Path | None = context.meta.get(SETTINGS)
    return path if context.get_parameter_source(parameter) is ParameterSource.DEFAULT_MAP else None


def given(context: click.Context, name: str, command: click.Command, words: Sequence[str]) -> dict[str, Any]:
    """Parameter → value of the options that the words of a command line give. {} if they are wrong, which click reports later."""
    with suppress(click.UsageError):
        found, _, order = command.make_parser(click.Context(command, context, name)).parse_args(list(words))
        return {str(one.name): found[one.name] for one in order if isinstance(one, click.Option) and one.name in found}
    return {}


def defaults_of(
    path: Path, command: click.Command, name: str, commands: Iterable[str], get: Get, given: Table, *, named: bool
) -> dict[str, Any]:
    """The defaults of a command's options from a file, by parameter name, as click takes defaults.

    commands, get: all names of commands, and the command of a name. given: the options on the command line. named: the command
    line names the file. Raises UsageError for a file that can't be read, a key that is no option, and one that only the command
    line may give.
    """
    table = _read(path)
    general = {key: value for key, value in table.items() if not isinstance(value, dict)}
    for key, value in table.items():
        if isinstance(value, dict) and key not in commands:
            raise _unknown(path, f"[{key}]", "command", key, commands)
    own = table.get(name, {})
    known = _options(command)
    for_all: dict[str, Any] = {}
    for_this: dict[str, Any] = {}
    for key, value in general.items():
        if key in known:
            for_all |= _default(path, key, value, known[key], named=named)
        elif not any(key in _options(other) for other in filter(None, map(get, commands))):
            everything = dict.fromkeys(option for other in filter(None, map(get, commands)) for option in _options(other))
            raise _unknown(path, key, "option of a command", key, everything)
    for key, value in own.items():
        if key not in known:
            raise _unknown(path, f"{name}.{key}", f"option of {name}", key, known)
        for_this |= _default(path, key, value, known[key], named=named)
    parameters = {str(one.name): one for one in command.params}
    for_this = _not_excluded(for_this, given, parameters)
    return _not_excluded(for_all, {**for_this, **given}, parameters) | for_this


def _not_excluded(defaults: Table, stronger: Table, parameters: Mapping[str, click.Parameter]) -> dict[str, Any]:
    """The defaults without those that an option of higher precedence excludes. One with its usual value excludes nothing."""
    active = {n for n, value in stronger.items() if value is not False and str(value) != str(parameters[n].default)}
    pairs = (*EXCLUSIVE, *((b, a) for a, b in EXCLUSIVE))
    left_out = {other for one, other in pairs if one in active}
    return {name: value for name, value in defaults.items() if name not in left_out}


def _read(path: Path) -> dict[str, Any]:
    text = _text(path)
    try:
        content = tomllib.loads(text)
    except ValueError as error:
        raise UsageError(f"{path}: {error}", hint="write it as TOML, key = value; --no-settings ignores it") from error
    return _tool(content, path) if path.name == PROJECT else content


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        hint = "name another with --settings, or give --no-settings"
        raise UsageError(f"{path}: {error.strerror or error}", hint=hint) from error
    except ValueError as error:
        raise UsageError(f"{path}: {error}", hint="write it in UTF-8; --no-settings ignores it") from error


def _tool(content: Table, path: Path) -> dict[str, Any]:
    tools = content.get("tool", {})
    own = tools.get(TOOL, {}) if isinstance(tools, dict) else {}
    if not isinstance(own, dict):
        raise UsageError(f"{path}: tool.{TOOL} is {own!r}, and no table", hint=f"write the options below [tool.{TOOL}]")
    return own


def _is_meant(path: Path) -> bool:
    """Whether a project file has our settings. One that does not name the tool has none, and may be damaged."""
    try:
        names_us = TOOL.encode() in path.read_bytes()
    except OSError:
        return False
    return names_us and bool(_read(path))


def _options(command: click.Command) -> dict[str, tuple[click.Option, bool]]:
    """The options of a command by their long names without dashes, and whether the name turns it on or off."""
    found: dict[str, tuple[click.Option, bool]] = {}
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            for names, on in ((parameter.opts, True), (parameter.secondary_opts, False)):
                found |= {name.removeprefix("--"): (parameter, on) for name in names if name.startswith("--")}
    return found


def _default(path: Path, key: str, value: Any, option: tuple[click.Option, bool], *, named: bool) -> dict[str, Any]:
    parameter, on = option
    if key in CODE and not named:
        hint = f"give --{key} on the command line, or name the file with --settings"
        raise UsageError(f"{path}: {key} loads code, which only a file named with --settings may do", hint=hint)
    if parameter.is_flag:
        if not isinstance(value, bool):
            raise _wrong(path, key, value, "true or false")
        return {str(parameter.name): value is on}
    if isinstance(value, bool | dict) or (isinstance(value, list) and not parameter.multiple):
        raise _wrong(path, key, value, "a text, a number" + (", or a list of these" if parameter.multiple else ""))
    several = value if isinstance(value, list) else [value]
    if any(isinstance(one, bool | dict | list) for one in several):
        raise _wrong(path, key, value, "a list of texts or numbers")
    texts = [_placed(path, key, str(one), parameter, named=named) for one in several]
    return {str(parameter.name): texts if parameter.multiple else texts[0]}


def _placed(path: Path, key: str, text: str, parameter: click.Option, *, named: bool) -> str:
    """A value as on the command line: paths become relative to the folder of the file."""
    place = path.parent / text
    if not isinstance(parameter.type, click.Path):
        return str(place) if key == "backend" and is_file_name(text) else text
    if key == "patterns" and not place.exists():
        return text  # the name of an installed pack
    if key == "patterns" and not named and any(_has_libraries(pack) for pack in _packs(place)):
        hint = f"give --{key} on the command line, or name the file with --settings"
        raise UsageError(f"{path}: the pack {text} loads libraries, which only a file named with --settings may do", hint=hint)
    return str(place)


def _packs(place: Path) -> Iterator[Path]:
    return place.rglob(PACK) if place.is_dir() else iter(())


def _has_libraries(pack: Path) -> bool:
    from onnx_subgraph.language.pack import read_pack

    return bool(read_pack(pack.parent).libraries)


def _wrong(path: Path, key: str, value: object, wanted: str) -> UsageError:
    return UsageError(f"{path}: {key} = {value!r} is no value of this option", hint=f"write {wanted}")


def _unknown(path: Path, shown: str, what: str, key: str, names: Iterable[str]) -> UsageError:
    from onnx_subgraph.language.spelling import nearest

    near = nearest(key, tuple(names))
    hint = f"did you mean {near!r}?" if near else "`onnx-subgraph COMMAND --help` lists the options"
    return UsageError(f"{path}: {shown} is no {what}", hint=hint)
