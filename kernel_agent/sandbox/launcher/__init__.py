"""Scripts that run outside and inside of sandboxes, with the standard library alone."""
