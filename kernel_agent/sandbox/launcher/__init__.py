"""What is run outside and inside of sandboxes as scripts, with the standard library alone."""
