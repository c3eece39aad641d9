"""Which runs of operators become engines, and the way back: `partition` and `inline`."""
