"""`StaticSession`: a session that makes itself a faster one for each signature of shapes and dtypes that it is run with.

The general model answers at once; a model specialised to the signature is prepared in the background, by the same command, with
the same checks and the same cache as ahead of time (`onnx-subgraph specialize`), and answers from then on.
"""

from __future__ import annotations

import os
import shutil
import threading
import warnings
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnx_subgraph.errors import OnnxSubgraphWarning, SessionError, UsageError
from onnx_subgraph.paths import StrPath
from onnx_subgraph.session.inference import InferenceSession, engines_of, weights_folder
from onnx_subgraph.session.prepare import prepare, specializing
from onnx_subgraph.session.schedule import Array, Buffers, Schedule, Signature, signature_of, spelled
from onnx_subgraph.session.schedules import Limits, Make, Schedules, Story
from onnx_subgraph.session.settings import SessionSettings
from onnx_subgraph.verification.sessions import plain_session_class


class StaticSession(InferenceSession):
    """An `InferenceSession` with static schedules.

    limits: the bound in number and bytes. reuse_buffers: inputs and outputs of a schedule are allocated and bound once; the
    arrays that `run` returns are then overwritten by the next run of the same signature, by the thread that ran it first; other
    threads get arrays of their own. Without it all belong to the caller.
    Everything else as in InferenceSession. Several threads may run it. Where the model is not prepared, it has no schedules.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: Any = None,
        providers: Sequence[str | tuple[str, dict[Any, Any]]] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
        *,
        settings: SessionSettings | None = None,
        limits: Limits | None = None,
        reuse_buffers: bool = False,
        **kwargs: Any,
    ) -> None:
        self._limits, self._reuse = limits or Limits(), reuse_buffers
        super().__init__(path_or_bytes, sess_options, providers, provider_options, settings=settings, **kwargs)
        source = path_or_bytes if isinstance(path_or_bytes, bytes) else Path(os.fspath(path_or_bytes))
        bound = self._limits if self._settings is not None else replace(self._limits, schedules=0)
        make = _maker(source, sess_options, providers, provider_options, self._settings or SessionSettings(), reuse_buffers)
        self._schedules = Schedules(make, bound, _warn)
        self._end = weakref.finalize(self, self._schedules.close)

    def run(self, output_names: Any, input_feed: Mapping[str, Any], run_options: Any = None) -> Any:
        """The outputs, as onnxruntime's `run` gives them: by the schedule of this signature, or by the general model."""
        signature = signature_of(input_feed)
        schedule = None if signature is None else self._schedules.find(signature)
        if schedule is None or signature is None:
            return super().run(output_names, input_feed, run_options)
        try:
            return schedule.run(output_names, input_feed, run_options)
        except Exception as error:  # the general model says whether the feeds are wrong or the schedule is
            outputs = super().run(output_names, input_feed, run_options)
            self._schedules.refuse(signature, f"it failed: {error}")
            _warn(signature, error)
            return outputs

    def schedules(self) -> tuple[Story, ...]:
        """What is known of each signature: its state, hits and misses, and why its schedule was made, is not there or is gone."""
        return self._schedules.stories()

    def warm(self, input_feed: Mapping[str, Any], timeout: float | None = None) -> bool:
        """Prepare the schedule for feeds like these and wait for it; whether it is there."""
        signature = self._signature(input_feed)
        self._schedules.want(signature)
        self._schedules.wait(timeout)
        return self._schedules.get(signature) is not None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is being prepared; whether that was so before `timeout` seconds were over."""
        return self._schedules.wait(timeout)

    def buffers(self, input_feed: Mapping[str, Any]) -> Mapping[str, Array]:
        """The input arrays of the schedule for feeds like these, to be filled in place and given to `run`, which copies nothing.

        Raises UsageError where there are none.
        """
        schedule = self._schedule(input_feed)
        if schedule.buffers is None:
            raise UsageError("this schedule has no buffers", hint="make the session with reuse_buffers=True")
        return schedule.buffers.inputs

    def save(self, input_feed: Mapping[str, Any], path: StrPath) -> None:
        """Write the model of the schedule for feeds like these: an ordinary model that runs without us. Raises UsageError."""
        schedule = self._schedule(input_feed)
        if schedule.model is None or not schedule.model.exists():
            raise UsageError("the file of this schedule is gone", hint="use a cache, or `onnx-subgraph specialize`")
        from onnx_subgraph.model.files import hand_on, load, save

        model, target = schedule.model, Path(path)
        if len(list(model.parent.glob(f"{model.name}*"))) == 1:
            hand_on(model, target)
        else:  # its data file gets the name of the new one
            save(load(model), target, model)

    def close(self) -> None:
        """Let go of all schedules; runs are by the general model from now on."""
        self._end()

    def _signature(self, feeds: Mapping[str, Any]) -> Signature:
        signature = signature_of(feeds)
        if signature is None:
            raise UsageError("only arrays of numbers have a signature", hint="give numpy arrays")
        return signature

    def _schedule(self, feeds: Mapping[str, Any]) -> Schedule:
        signature = self._signature(feeds)
        schedule = self._schedules.get(signature)
        if schedule is None:
            raise UsageError(f"there is no schedule for {spelled(signature)}", hint="`warm` prepares it")
        return schedule

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """Make the session again for other providers; the schedules start anew."""
        self.close()
        options, settings, kwargs = self._given
        StaticSession.__init__(
            self,
            self._source,
            options,
            providers,
            provider_options,
            settings=settings,
            limits=self._limits,
            reuse_buffers=self._reuse,
            **kwargs,
        )


def _maker(
    source: Path | bytes, options: Any, providers: Any, provider_options: Any, settings: SessionSettings, reuse: bool
) -> Make:
    """What makes schedules; it knows the session's arguments and not the session, which may end before it."""
    names = [provider if isinstance(provider, str) else provider[0] for provider in providers or ()]

    def make(signature: Signature, stop: threading.Event) -> Schedule:
        if any(0 in shape for _, _, shape in signature):
            raise SessionError("an input is empty")
        recipe = specializing(settings, names or ["CPUExecutionProvider"], {name: shape for name, _, shape in signature})
        prepared = prepare(source, recipe, settings, weights=weights_folder(options), stop=stop)
        try:
            if prepared.path is None:
                raise SessionError(prepared.reason)
            session = engines_of(prepared, settings) or plain_session_class()(
                str(prepared.path), options, providers, provider_options, enable_fallback=0
            )
        finally:
            if prepared.temporary is not None:
                shutil.rmtree(prepared.temporary, ignore_errors=True)
        buffers = Buffers.bound(session, signature) if reuse and not prepared.engines else None
        needed = prepared.nbytes + (0 if buffers is None else buffers.nbytes)
        return Schedule(signature, session, prepared.path, needed, buffers)

    return make


def _warn(signature: Signature, error: Exception) -> None:
    message = f"no static schedule for {spelled(signature)}: {error}"
    warnings.warn(message, OnnxSubgraphWarning, stacklevel=2)
