"""Containers of the real image, in the conventions of testcontainers: the extra `containers`."""
