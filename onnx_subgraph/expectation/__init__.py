"""What a run of `fuse` is expected to give, as a YAML file: read, held against a result, and made from one."""
