"""Sessions that prepare their model first: a drop-in for onnxruntime's, its cache on disk, the hook, and static schedules."""
