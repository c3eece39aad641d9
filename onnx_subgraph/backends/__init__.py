"""What can run a region of a model: the protocol of a backend, the registry, and the backends that come with the package."""
