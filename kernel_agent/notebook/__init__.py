"""What comes out of a run: the exported notebook, and its verification."""
