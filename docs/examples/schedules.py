"""Static schedules at work: two batch sizes under a bound of one, and what the session tells of them."""

import sys

import numpy as np

from onnx_subgraph import Limits, StaticSession

session = StaticSession(sys.argv[1], limits=Limits(schedules=1, after=2))
for batch in (1, 2):
    feeds = {value.name: np.ones((batch, 8), np.int64) for value in session.get_inputs()}
    session.run(None, feeds)
    session.warm(feeds)
    session.run(None, feeds)
for story in session.schedules():
    print(story.signature[0][2], story.state, f"{story.hits} hits, {story.misses} misses:", story.reason)
session.save(feeds, "static.onnx")
