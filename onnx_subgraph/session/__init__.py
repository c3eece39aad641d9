"""Sessions that fuse their model first: a drop-in for onnxruntime's class, its cache on disk, the hook, and static schedules."""
