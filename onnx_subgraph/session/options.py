"""The parts of onnxruntime's session options that affect us."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnx_subgraph.errors import SessionError
from onnx_subgraph.session.digest import Memory

ENABLE = "onnx_subgraph.enable"
"""Key of `SessionOptions.add_session_config_entry`: "0" disables us for this one session."""
_FOLDER = "session.model_external_initializers_file_folder_path"
_PREPACKING = "session.disable_prepacking"
_FORMAT = "session.load_model_format"


def is_enabled(options: Any) -> bool:
    """Whether we may change the session."""
    return _entry(options, ENABLE) != "0"


def as_made(session: Any, given: Any) -> Any:
    """A copy of the options that a session was made with: the caller may change its own later.

    given: the caller's, which are returned if they name providers. The copy lacks these, and the libraries of custom operators.
    """
    names_providers = getattr(given, "has_providers", None)  # not before onnxruntime 1.23
    return given if names_providers is not None and names_providers() else session.session_options


def is_optimised(options: Any, arguments: Mapping[str, Any]) -> bool:
    """Whether onnxruntime optimises and packs the model as by default, so that a packed copy can be reused.

    arguments: the other keyword arguments of the session.
    """
    if arguments.get("disabled_optimizers"):
        return False
    level = options.graph_optimization_level == type(options.graph_optimization_level).ORT_ENABLE_ALL
    return bool(level) and _entry(options, _PREPACKING) != "1" and not _entry(options, _FOLDER)


def weights_folder(options: Any) -> Path | None:
    """The folder of external data in the session options; None if not set."""
    folder = _entry(options, _FOLDER)
    return Path(folder) if folder else None


def home(source: Path | bytes, options: Any) -> Path | None:
    """The folder of the external data of a model in memory: the current one, as in onnxruntime. None for a file.

    Raises SessionError if the model has external data and the session options name a folder: onnxruntime would look there for the
    data of the prepared model, too. Raises as `Memory.locations` does.
    """
    if (folder := weights_folder(options)) is not None and Memory(None).locations(source):
        raise SessionError(
            f"the session options name the folder of its data, {folder}, and the fused model has its own data elsewhere",
            hint=f"leave out {_FOLDER}, and give the path of the model with its data beside it",
        )
    return Path.cwd() if isinstance(source, bytes) else None


def _entry(options: Any, key: str) -> str:
    """The value of `key` in the session options, "" if not set."""
    if options is None:
        return ""
    try:
        return str(options.get_session_config_entry(key))
    except RuntimeError:  # the key is not set
        return ""


def is_other_format(source: Path | bytes, options: Any) -> bool:
    """Whether the model is in onnxruntime's flatbuffer format, by onnxruntime's own rules."""
    if _entry(options, _FORMAT).upper() == "ORT":
        return True
    return source[4:8] == b"ORTM" if isinstance(source, bytes) else source.suffix == ".ort"
