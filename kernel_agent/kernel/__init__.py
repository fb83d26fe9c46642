"""Where cells run: the kernel process, our client for it, and what the model is shown of a cell."""
