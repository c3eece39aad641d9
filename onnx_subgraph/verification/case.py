"""One set of feeds, what the original yields for it, and how far a candidate may be from that."""

from __future__ import annotations

from dataclasses import dataclass, field

from onnx_subgraph.verification.feeds import Feeds
from onnx_subgraph.verification.judge import Bound
from onnx_subgraph.verification.sessions import Outputs, Session
from onnx_subgraph.verification.sizes import Sizes


@dataclass(slots=True)
class Case:
    """One set of feeds and, once the reference has run, its outputs and their bounds. drawn: what its random operators gave."""

    sizes: Sizes
    seed: int | None
    feeds: Feeds
    outputs: Outputs = field(default_factory=dict)
    bounds: dict[str, Bound] = field(default_factory=dict)
    drawn: Feeds = field(default_factory=dict)

    def fed_to(self, session: Session) -> Feeds:
        """What is fed to a session: the feeds, and what random operators gave where it has inputs for that."""
        if not self.drawn:
            return self.feeds
        inputs = {argument.name for argument in session.handle.get_inputs()}
        return self.feeds | {name: value for name, value in self.drawn.items() if name in inputs}
