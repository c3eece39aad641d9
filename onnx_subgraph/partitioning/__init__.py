"""Partition a model: regions of operators become engines (`partition`), and ordinary nodes again (`inline`)."""
