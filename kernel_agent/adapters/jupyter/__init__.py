"""Stands between a sandboxed kernel and a Jupyter application: passes on what is harmless."""
