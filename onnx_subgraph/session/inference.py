"""`InferenceSession`: onnxruntime's own class, with a model that is fused before it is loaded.

It is a subclass, so that everything that works on onnxruntime's sessions works on it. What it adds happens on construction;
whatever goes wrong then, the unmodified model is loaded instead, with a warning. This module imports onnxruntime at its top,
because it derives from a class of it; it is itself imported only by those who want a session.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession as PlainSession

from onnx_subgraph.errors import OnnxSubgraphError, OnnxSubgraphWarning, SessionError, UsageError
from onnx_subgraph.model.carried import carried_functions
from onnx_subgraph.operators.names import ENGINE, OWN_DOMAIN
from onnx_subgraph.session import hook
from onnx_subgraph.session.kernels import with_kernels_for
from onnx_subgraph.session.prepare import Prepared, fusing, prepare
from onnx_subgraph.session.settings import SessionSettings, is_strict

if TYPE_CHECKING:
    from onnx_subgraph.engine.session import EngineSession

ENABLE = "onnx_subgraph.enable"
"""Key of `SessionOptions.add_session_config_entry`: "0" leaves the model of this one session as it is."""
_FOLDER = "session.model_external_initializers_file_folder_path"
_FORMAT = "session.load_model_format"
_OTHER_FORMAT = "it is in onnxruntime's own format, not an ONNX model"


class InferenceSession(PlainSession):  # type: ignore[misc]
    """A session of onnxruntime whose model is fused (and partitioned) first, once: the result is cached on disk.

    Takes what onnxruntime.InferenceSession takes; settings: how to prepare, by default what the environment says.
    Raises what onnxruntime raises for the unmodified model; SessionError only where the settings are strict.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: Any = None,
        providers: Sequence[str | tuple[str, dict[Any, Any]]] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
        *,
        settings: SessionSettings | None = None,
        **kwargs: Any,
    ) -> None:
        self._source = path_or_bytes
        self._given = sess_options, settings, kwargs
        self._strict = settings.strict if settings is not None else is_strict()
        self._settings: SessionSettings | None = None  # those by which the model was prepared, once it was
        self._engines: EngineSession | None = None
        self.prepared = self._prepare(sess_options, providers, settings)
        if self.prepared.path is not None and self._load_prepared(sess_options, providers, provider_options, kwargs):
            return
        super().__init__(path_or_bytes, self._own_options(sess_options, providers), providers, provider_options, **kwargs)
        self._engines = self._own_engines(sess_options)

    prepared: Prepared
    """What became of the model: its file, whether it came from the cache, and why it is the original if it is."""

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """Make the session again for other providers, as onnxruntime does; the model is prepared for them."""
        options, settings, kwargs = self._given
        type(self).__init__(self, self._source, options, providers, provider_options, settings=settings, **kwargs)

    def _prepare(self, options: Any, providers: Any, settings: SessionSettings | None) -> Prepared:
        try:
            settings = settings or SessionSettings.of_environment()
            if not settings.enabled:
                return Prepared(None, reason="the settings say so")
            if _entry(options, ENABLE) == "0":
                return Prepared(None, reason="its options say so")
            source = self._source if isinstance(self._source, bytes) else Path(os.fspath(self._source))
            if isinstance(source, Path) and not source.is_file():
                return Prepared(None, reason="there is no such file")  # onnxruntime says it in its own words
            if _is_other_format(source, options):
                raise SessionError(_OTHER_FORMAT)
            names = [provider if isinstance(provider, str) else provider[0] for provider in providers or ()]
            recipe = fusing(settings, names or ["CPUExecutionProvider"])
            prepared = prepare(source, recipe, settings, weights=weights_folder(options))
            if prepared.refused:
                raise SessionError(prepared.reason)
        except Exception as error:
            return self._give_up(error)
        self._settings = settings
        return prepared

    def _own_options(self, options: Any, providers: Any) -> Any:
        """The options for the model as it is; with our kernels where it has operators of ours and is not to be left alone."""
        if self._settings is None:
            return options
        source = self._source if isinstance(self._source, bytes) else Path(os.fspath(self._source))
        return with_kernels_for(source, options, providers)

    def _own_engines(self, options: Any) -> EngineSession | None:
        """What runs the engines of the model as it is, where it was written with some; None where it has none, or no backend."""
        if self._settings is None or isinstance(self._source, bytes):
            return None
        path = Path(os.fspath(self._source))
        try:
            return _engines(path, self._settings, weights_folder(options)) if has_engines(path) else None
        except Exception as error:  # a backend's own
            said = error.message if isinstance(error, OnnxSubgraphError) else str(error) or type(error).__name__
            message = f"{path}: the nodes of its engines run in onnxruntime: {said}"
            if self._strict:
                raise SessionError(message) from error
            warnings.warn(message, OnnxSubgraphWarning, stacklevel=_users_frame())
            return None

    def run(self, output_names: Any, input_feed: Any, run_options: Any = None) -> Any:
        """The outputs, as onnxruntime's `run` gives them; where regions were given to a backend, by their engines."""
        if self._engines is not None:
            try:
                return self._engines.run(output_names, input_feed, run_options)
            except UsageError:
                pass  # the feeds don't fit, which onnxruntime says in its own words
        return super().run(output_names, input_feed, run_options)

    def _load_prepared(self, options: Any, providers: Any, provider_options: Any, kwargs: dict[str, Any]) -> bool:
        """Load the prepared model; whether that worked."""
        assert self.prepared.path is not None
        try:
            options = with_kernels_for(self.prepared.path, options, providers)
            # onnxruntime's own fallback prints, and would hide what is wrong with the prepared model.
            super().__init__(str(self.prepared.path), options, providers, provider_options, **{**kwargs, "enable_fallback": 0})
            self._engines = engines_of(self.prepared, self._settings or SessionSettings())
        except Exception as error:  # onnxruntime's exceptions share no class of their own below Exception
            self.prepared = self._give_up(error)
            return False
        finally:
            if self.prepared.temporary is not None:
                shutil.rmtree(self.prepared.temporary, ignore_errors=True)
        if int(kwargs.get("enable_fallback", 1)) == 1:
            self.enable_fallback()
        if isinstance(self._source, bytes):
            self._model_path, self._model_bytes = None, self._source
        else:
            self._model_path = os.fspath(self._source)  # programs look there for the folder of their model
        return True

    def _give_up(self, error: Exception) -> Prepared:
        """Raises where that is strict, else warns and has the original used."""
        which = "a model in memory" if isinstance(self._source, bytes) else os.fspath(self._source)
        said = error.message if isinstance(error, OnnxSubgraphError) else str(error) or type(error).__name__
        hint = error.hint if isinstance(error, OnnxSubgraphError) else None
        message = f"{which} is used as it is, not fused: {said.removeprefix(which + ': ')}"
        if self._strict:
            raise SessionError(message, hint=hint) from error
        warnings.warn(message + (f" ({hint})" if hint else ""), OnnxSubgraphWarning, stacklevel=_users_frame())
        return Prepared(None, reason=said)


def engines_of(prepared: Prepared, settings: SessionSettings) -> EngineSession | None:
    """What runs the engines of a prepared model; None where it has none. Raises OnnxSubgraphError where a backend is missing."""
    if prepared.path is None or not (prepared.engines or has_engines(prepared.path)):
        return None
    return _engines(prepared.path, settings)


def has_engines(path: Path) -> bool:
    """Whether the model in a file was written with engines."""
    return (OWN_DOMAIN, ENGINE) in carried_functions(path)


def _engines(path: Path, settings: SessionSettings, weights: Path | None = None) -> EngineSession:
    from onnx_subgraph.engine.engine import EngineSettings
    from onnx_subgraph.engine.session import EngineSession

    return EngineSession(path, settings=EngineSettings(isolated=settings.isolated), weights=weights, required=True)


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


def _is_other_format(source: Path | bytes, options: Any) -> bool:
    """Whether the model is in onnxruntime's flatbuffer format, by the rules by which onnxruntime tells."""
    if _entry(options, _FORMAT).upper() == "ORT":
        return True
    return source[4:8] == b"ORTM" if isinstance(source, bytes) else source.suffix == ".ort"


def _users_frame() -> int:
    """The stack level, as `warnings.warn` in our caller counts it, of the first frame outside this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("onnx_subgraph."):
        frame, level = frame.f_back, level + 1
    return level


hook.catch_up()
