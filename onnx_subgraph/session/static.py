"""`StaticSession`: a session that makes a faster model for each signature of shapes and dtypes that it meets.

The general model answers at once. A model specialised to the signature is prepared in the background, with the same command,
checks and cache as ahead of time (`onnx-subgraph specialize`), and answers from then on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from onnx_subgraph.errors import UsageError
from onnx_subgraph.late import late_imports
from onnx_subgraph.paths import StrPath
from onnx_subgraph.session.inference import InferenceSession
from onnx_subgraph.session.record import Limits
from onnx_subgraph.session.schedule import Array, Schedule, signature_of, spelled
from onnx_subgraph.session.settings import SessionSettings
from onnx_subgraph.values import check_kind


class StaticSession(InferenceSession):
    """An `InferenceSession` with static schedules, whatever its settings say.

    limits: of number and bytes.
    reuse_buffers: inputs and outputs of a schedule are allocated and bound once. The next run of the same signature then
    overwrites the arrays that `run` returned to the thread that ran it first; other threads get their own arrays. Without it all
    arrays belong to the caller. Everything else is as in InferenceSession. Several threads may run it. If the model is not
    prepared, it has no schedules.
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
        check_kind("limits", limits, Limits)
        self._our_limits, self._our_reuse = limits or Limits(), reuse_buffers
        super().__init__(path_or_bytes, sess_options, providers, provider_options, settings=settings, **kwargs)

    def buffers(self, input_feed: Mapping[str, Any]) -> Mapping[str, Array]:
        """The input arrays of the schedule for feeds like these: filled in place, `run` takes them without a copy.

        Raises UsageError if there are none.
        """
        schedule = self._our_schedule(input_feed)
        if schedule.buffers is None:
            raise UsageError("this schedule has no buffers", hint="make the session with reuse_buffers=True")
        return schedule.buffers.inputs

    def save(self, input_feed: Mapping[str, Any], path: StrPath) -> None:
        """Write the model of the schedule for feeds like these, an ordinary model that runs without us. Raises UsageError."""
        schedule = self._our_schedule(input_feed)
        if schedule.model is None or not schedule.model.exists():
            raise UsageError("the file of this schedule is gone", hint="use a cache, or `onnx-subgraph specialize`")
        with late_imports():
            from onnx_subgraph.files.models import hand_on, load, save
        model, target = schedule.model, Path(path)
        if len(list(model.parent.glob(f"{model.name}*"))) == 1:
            hand_on(model, target)
        else:  # its data file gets the name of the new one
            save(load(model), target, model)

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """Make the session again for other providers; the schedules start anew."""
        options, settings, kwargs = self._our_given
        again = partial(StaticSession.__init__, settings=settings, limits=self._our_limits, reuse_buffers=self._our_reuse)
        self._our_again(again, options, providers, provider_options, **kwargs)

    def _our_wanted(self, settings: SessionSettings) -> SessionSettings:
        return replace(settings, static=True)

    def _our_schedule(self, feeds: Mapping[str, Any]) -> Schedule:
        signature = signature_of(feeds)
        if signature is None:
            raise UsageError("only arrays of numbers have a signature", hint="give numpy arrays")
        schedule = None if self._our_schedules is None else self._our_schedules.get(signature)
        if schedule is None:
            raise UsageError(f"there is no schedule for {spelled(signature)}", hint="`warm` prepares it")
        return schedule
