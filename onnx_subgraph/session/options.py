"""What the options of a session of onnxruntime say that matters to us."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ENABLE = "onnx_subgraph.enable"
"""Key of `SessionOptions.add_session_config_entry`: "0" leaves the model of this one session as it is."""
_FOLDER = "session.model_external_initializers_file_folder_path"
_PREPACKING = "session.disable_prepacking"
_FORMAT = "session.load_model_format"


def is_enabled(options: Any) -> bool:
    """Whether the session may be touched."""
    return _entry(options, ENABLE) != "0"


def is_optimised(options: Any) -> bool:
    """Whether onnxruntime rewrites and packs a model as it does by default, so that what it made of it once serves again."""
    if options is None:
        return True
    level = options.graph_optimization_level == type(options.graph_optimization_level).ORT_ENABLE_ALL
    return bool(level) and _entry(options, _PREPACKING) != "1" and not _entry(options, _FOLDER)


def weights_folder(options: Any) -> Path | None:
    """Where session options say that external data lies; None where they say nothing."""
    folder = _entry(options, _FOLDER)
    return Path(folder) if folder else None


def _entry(options: Any, key: str) -> str:
    """What the session options say under `key`, "" where they say nothing."""
    if options is None:
        return ""
    try:
        return str(options.get_session_config_entry(key))
    except RuntimeError:  # the key is not there
        return ""


def is_other_format(source: Path | bytes, options: Any) -> bool:
    """Whether the model is in onnxruntime's flatbuffer format, by the rules by which onnxruntime tells."""
    if _entry(options, _FORMAT).upper() == "ORT":
        return True
    return source[4:8] == b"ORTM" if isinstance(source, bytes) else source.suffix == ".ort"
