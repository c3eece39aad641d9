"""`InferenceSession`: onnxruntime's own class, which fuses a model before it loads it, and has schedules for some lengths.

It is a subclass, so everything that works with onnxruntime's sessions works with it. If anything goes wrong during construction,
the unmodified model is loaded instead, with a warning. This module imports onnxruntime at its top, because it derives a class
from it; it is only imported for a session.
"""

from __future__ import annotations

import os
import shutil
import time
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession as PlainSession
from onnxruntime.capi.onnxruntime_pybind11_state import SessionOptions

from onnx_subgraph.errors import OnnxSubgraphError, OnnxSubgraphWarning, SessionError, UsageError
from onnx_subgraph.paths import several
from onnx_subgraph.session import hook
from onnx_subgraph.session.digest import Memory
from onnx_subgraph.session.engines import engines_of, has_engines, open_engines
from onnx_subgraph.session.general import general_models
from onnx_subgraph.session.kernels import with_kernels_for
from onnx_subgraph.session.libraries import note_down, registered, with_libraries
from onnx_subgraph.session.options import as_made, home, is_enabled, is_optimised, is_other_format, weights_folder
from onnx_subgraph.session.paying import Trials
from onnx_subgraph.session.prepare import Prepared
from onnx_subgraph.session.providers import providers_here
from onnx_subgraph.session.record import Limits, Story
from onnx_subgraph.session.schedule import Feeds, Schedule, signature_of
from onnx_subgraph.session.schedules import Maker, Schedules
from onnx_subgraph.session.settings import SessionSettings, is_strict
from onnx_subgraph.session.special import Compiled, Specialised, in_place, opened
from onnx_subgraph.session.users_frame import users_frame
from onnx_subgraph.values import check_kind

if TYPE_CHECKING:
    from onnx_subgraph.engine.session import EngineSession

_OTHER_FORMAT = "it is in onnxruntime's own format, not an ONNX model"


class InferenceSession(PlainSession):  # type: ignore[misc]
    """A session of onnxruntime whose model is fused (and partitioned) first, once: the result is cached on disk.

    Takes the arguments of onnxruntime.InferenceSession.
    settings: how to prepare; the default comes from the environment. With static settings, or with a backend, repeated sizes of
    feeds are run by a schedule for them.
    Private names begin with `_our`. A program may derive a class without knowing of this one, and give it names such as `_model`.
    Raises what onnxruntime raises for the unmodified model; SessionError only if the settings are strict; UsageError for settings
    of another class.
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
        check_kind("settings", settings, SessionSettings)
        self._our_source: Any = path_or_bytes  # whatever a program gives
        self._our_given = sess_options, settings, kwargs
        self._our_strict = settings.strict if settings is not None else is_strict()
        self._our_settings: SessionSettings | None = None  # those that prepared the model
        self._our_schedules: Schedules | None = None
        self._our_general_model = Prepared(None)
        self.prepared = self._our_prepare(sess_options, providers, settings)
        made = self.prepared
        try:
            if self._our_general_model.path is None or not self._our_load_prepared(
                sess_options, providers, provider_options, kwargs
            ):
                super().__init__(path_or_bytes, self._our_options(sess_options, providers), providers, provider_options, **kwargs)
            self._our_special(sess_options, providers, provider_options, kwargs)
        finally:
            for one in (made, self._our_general_model):
                if one.temporary is not None:
                    shutil.rmtree(one.temporary, ignore_errors=True)

    _our_limits, _our_reuse = Limits(), False

    prepared: Prepared
    """The prepared model: its file, whether it came from the cache, and why it is the original if it is."""

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """Make the session again for other providers, as onnxruntime does; the model is prepared for them."""
        options, settings, kwargs = self._our_given
        self._our_again(InferenceSession.__init__, options, providers, provider_options, settings=settings, **kwargs)

    def _our_again(self, init: Callable[..., None], *arguments: Any, **kwargs: Any) -> None:
        """Call `__init__` of a class again. As in onnxruntime, wrong providers raise, and the fallback in runs stays as it is."""
        falls_back: bool = self._enable_fallback
        InferenceSession.close(self)  # a program's own subclass may have another `close`
        try:
            init(self, self._our_source, *arguments, **{**kwargs, "enable_fallback": 0})
        finally:
            (self.enable_fallback if falls_back else self.disable_fallback)()

    def _our_wanted(self, settings: SessionSettings) -> SessionSettings:
        """The settings in the form that this class takes."""
        return settings

    def _our_prepare(self, options: Any, providers: Any, settings: SessionSettings | None) -> Prepared:
        try:
            settings = self._our_wanted(settings or SessionSettings.of_environment())
            if not settings.enabled:
                return Prepared(None, reason="the settings say so")
            if not is_enabled(options):
                return Prepared(None, reason="its options say so")
            if not isinstance(self._our_source, str | bytes | os.PathLike):
                return Prepared(None, reason="it is no model")  # onnxruntime reports this, and the next, in its own words
            source = self._our_model()
            if isinstance(source, Path) and not source.is_file():
                return Prepared(None, reason="there is no such file")
            if is_other_format(source, options):
                raise SessionError(_OTHER_FORMAT)
            settings = replace(settings, libraries=(*several(settings.libraries), *registered(options)))
            general, prepared = general_models(source, settings, providers_here(providers), home(source, options))
            for one in (general, prepared):
                if one.refused:
                    raise SessionError(one.reason)
        except Exception as error:
            return self._our_give_up(error)
        self._our_settings, self._our_general_model = settings, general
        return prepared

    def _our_options(self, options: Any, providers: Any) -> Any:
        """The options for the unmodified model; with our kernels if it has our operators, unless the session is disabled."""
        if self._our_settings is None:
            return options
        return with_kernels_for(self._our_model(), with_libraries(options, several(self._our_settings.libraries)), providers)

    def run(self, output_names: Any, input_feed: Any, run_options: Any = None) -> Any:
        """The outputs, as onnxruntime's `run` gives them: from the general model, or from a schedule for such feeds."""
        schedules = self._our_schedules  # another thread may set the providers meanwhile
        fits = schedules is not None and (run_options is None or self._our_takes_options)
        signature = signature_of(input_feed) if fits else None
        if schedules is None or signature is None:
            return super().run(output_names, input_feed, run_options)
        schedule = schedules.find(signature)
        begun = time.perf_counter()
        if schedule is None:
            outputs = super().run(output_names, input_feed, run_options)
        else:
            outputs = self._our_run_special(schedules, schedule, output_names, input_feed, run_options)
        schedules.ran(signature, input_feed, time.perf_counter() - begun, schedule)
        return outputs

    def _our_run_special(self, schedules: Schedules, schedule: Schedule, output_names: Any, feeds: Any, options: Any) -> Any:
        before = schedule.fallbacks
        try:
            outputs = schedule.run(output_names, feeds, options)
        except Exception as error:  # the general model tells whether the feeds or the schedule are wrong
            outputs = super().run(output_names, feeds, options)
            schedules.refuse(schedule, f"it failed: {error}", tell=True)
            return outputs
        if schedule.fallbacks > before:  # onnxruntime alone is faster in one piece
            schedules.refuse(schedule, schedule.failure, tell=False)
        return outputs

    @property
    def _our_takes_options(self) -> bool:
        """Whether a schedule takes the options of a run: engines and bound buffers do not."""
        return self._our_settings is not None and self._our_settings.static and not self._our_reuse

    def schedules(self) -> tuple[Story, ...]:
        """The state of each signature: hits and misses, and why its schedule was made, is missing or was dropped."""
        return () if (schedules := self._our_schedules) is None else schedules.stories()

    def warm(self, input_feed: Mapping[str, Any], timeout: float | None = None) -> bool:
        """Prepare the schedule for feeds like these and wait; whether it is ready, never after `close`.

        Raises UsageError for no arrays.
        """
        signature = signature_of(input_feed)
        if signature is None:
            raise UsageError("only arrays of numbers have a signature", hint="give numpy arrays")
        if (schedules := self._our_schedules) is None:
            return False
        schedules.want(signature, input_feed)
        schedules.wait(timeout)
        return schedules.get(signature) is not None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is being prepared; False after `timeout` seconds."""
        return (schedules := self._our_schedules) is None or schedules.wait(timeout)

    def close(self) -> None:
        """Drop all schedules; the general model runs everything from now on."""
        if self._our_schedules is not None:
            self._our_schedules.close()

    def _our_special(self, options: Any, providers: Any, provider_options: Any, kwargs: dict[str, Any]) -> None:
        """Start schedules, if the settings or the engines of the model need them."""
        settings = self._our_settings
        if settings is None:
            return
        if settings.static:
            names = providers_here(providers)
            arguments = providers, provider_options, {**kwargs, "enable_fallback": 0}
            made = partial(opened, settings, copy := as_made(self._sess, options), *arguments)
            source = in_place(self._our_model()), self._our_general_model.content, home(self._our_model(), options)
            inputs = frozenset(one.name for one in self.get_inputs())
            make: Maker = Specialised(*source, inputs, names, settings, made, self._our_reuse, is_optimised(copy, kwargs))
        elif (engines := self._our_prepared_engines(settings) or self._our_written_engines(options, settings)) is not None:
            make = Compiled(engines, self._our_limits.every)
        else:
            return
        general = weakref.WeakMethod(self._our_general)  # the session may end before a trial
        memory = None if settings.cache is None else Memory(Path(settings.cache) / "ratios")
        trials = Trials(lambda feeds: run(feeds) if (run := general()) is not None else None, memory, self.prepared.key)
        self._our_schedules = Schedules(make, self._our_limits, trials)
        weakref.finalize(self, self._our_schedules.close)

    def _our_general(self, feeds: Feeds) -> Any:
        return super().run(None, feeds)

    def _our_model(self) -> Path | bytes:
        return self._our_source if isinstance(self._our_source, bytes) else Path(os.fsdecode(self._our_source))

    def _our_prepared_engines(self, settings: SessionSettings) -> EngineSession | None:
        """The session of the prepared model's engines; None if it has none, or they can't be loaded."""
        try:
            return engines_of(self.prepared, settings)
        except Exception as error:  # the backend's own exception
            self.prepared = self._our_give_up(error)
            return None

    def _our_written_engines(self, options: Any, settings: SessionSettings) -> EngineSession | None:
        """The session of the engines that the unmodified model was written with; None if it has none, or a backend is missing."""
        path = self._our_model()
        if isinstance(path, bytes) or self.prepared.path is not None:
            return None
        try:
            return open_engines(path, settings, weights_folder(options)) if has_engines(path) else None
        except Exception as error:  # the backend's own exception
            said = error.message if isinstance(error, OnnxSubgraphError) else str(error) or type(error).__name__
            message = f"{path}: the nodes of its engines run in onnxruntime: {said}"
            if self._our_strict:
                raise SessionError(message) from error
            warnings.warn(message, OnnxSubgraphWarning, stacklevel=users_frame())
            return None

    def _our_load_prepared(self, options: Any, providers: Any, provider_options: Any, kwargs: dict[str, Any]) -> bool:
        """Load the general model; whether that worked."""
        general = self._our_general_model
        assert general.path is not None
        try:
            options = with_kernels_for(general.path, with_libraries(options, general.libraries), providers)
            # onnxruntime's own fallback prints, and would hide the error of the prepared model.
            super().__init__(str(general.path), options, providers, provider_options, **{**kwargs, "enable_fallback": 0})
        except Exception as error:  # onnxruntime's exceptions have no common base class below Exception
            self.prepared = self._our_give_up(error)
            return False
        if int(kwargs.get("enable_fallback", 1)) == 1:
            self.enable_fallback()
        if isinstance(self._our_source, bytes):
            self._model_path, self._model_bytes = None, self._our_source
        else:
            self._model_path = os.fspath(self._our_source)  # programs look here for the folder of their model
        return True

    def _our_give_up(self, error: Exception) -> Prepared:
        """Raises if the settings are strict; else warns and uses the original."""
        which = "a model in memory" if isinstance(self._our_source, bytes) else os.fsdecode(self._our_source)
        said = error.message if isinstance(error, OnnxSubgraphError) else str(error) or type(error).__name__
        hint = error.hint if isinstance(error, OnnxSubgraphError) else None
        message = f"{which} is used as it is, not fused: {said.removeprefix(which + ': ')}"
        if self._our_strict:
            raise SessionError(message, hint=hint) from error
        warnings.warn(message + (f" ({hint})" if hint else ""), OnnxSubgraphWarning, stacklevel=users_frame())
        return Prepared(None, reason=said)


note_down(SessionOptions)
hook.catch_up()
