"""How the book is built: ``make book``.

The clone itself is the source, so that pages outside of ``docs`` are in the book, too. Pages stay
plain Markdown: their order stands here and not in them.
"""

import re
from pathlib import Path
from typing import Any

project = "kernel-agent"
extensions = ["myst_nb"]
root_doc = "docs/README"
exclude_patterns = [".*", "**/.ipynb_checkpoints", "site", "runs"]
include_patterns = ["*.md", "docs/**", "example_notebooks/**", "benchmarks/README.md"]

myst_heading_anchors = 4  # as GitHub makes them
myst_links_external_new_tab = False
nb_execution_mode = "off"  # notebooks are shown as they were saved
suppress_warnings = ["misc.highlighting_failure"]  # magics are no Python

html_theme = "furo"
html_title = "kernel-agent"
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": False}
templates_path: list[str] = []
pygments_style, pygments_dark_style = "tango", "monokai"

EXAMPLES = sorted((Path(__file__).parents[1] / "example_notebooks").glob("*.ipynb"))

PARTS = {
    "Start": ["What it is <../README>", "install", "first-answer", "jupyter", "python"],
    "How to": [
        "command", "folders", "models", "settings", "ready-made-tools", "web", "tools", "mcp",
        "approval", "notebook", "undo", "every-month", "summary", "delegation", "evaluation",
        "testing", "telemetry", "sandboxed-kernel", "troubleshooting",
    ],
    "Examples": [
        "../example_notebooks/README", *(f"../example_notebooks/{path.stem}" for path in EXAMPLES),
        "../example_notebooks/data/README",
    ],
    "Reference": [
        "reference/command", "reference/magic", "reference/settings", "reference/python",
        "reference/run-folder", "trace", "reference/limits", "reference/glossary",
        "reference/versions", "../CHANGELOG",
    ],
    "Understand": [
        "how-a-run-works", "what-leaves-your-machine", "sandbox", "sandbox-microvm", "context",
        "formats", "trust-a-notebook",
    ],
    "Security": ["../SECURITY", "what-holds", "how-measured", "fixed", "attacks"],
    "Developers": [
        "../CONTRIBUTING", "design", "panel", "sandbox-internals", "speed", "../benchmarks/README",
    ],
}  # fmt: skip
"""The pages, in their order; below each part, those that exist."""


def path_of(page: str) -> str:
    """Return the path in the clone, without its ending, of a page that may have a title."""
    return f"docs/{page.rpartition('<')[2].rstrip('>')}".replace("docs/../", "")


def add_navigation(app: Any, name: str, content: list[str]) -> None:
    """Put the tree of pages below the home page."""
    if name == root_doc:
        for part, pages in PARTS.items():
            there = [page for page in pages if path_of(page) in app.env.found_docs]
            head = ["\n```{toctree}", ":hidden:", f":caption: {part}", ""]
            content[0] += "\n".join([*head, *there, "```\n"])


OUTSIDE = re.compile(r"""<(?:script|img|iframe|link rel="stylesheet")[^>]* (?:src|href)="https?:""")


def add_index(app: Any, fault: Exception | None) -> None:
    """Lead from the folder to the home page, and see that no page loads anything from outside."""
    if fault is None:
        pages = Path(app.outdir).rglob("*.html")
        if loads := [str(page) for page in pages if OUTSIDE.search(page.read_text())]:
            raise RuntimeError(f"loads something from outside: {loads}")
        to = app.builder.get_target_uri(root_doc)
        there = f'<meta http-equiv="refresh" content="0; url={to}">'
        page = f'<!doctype html><meta charset="utf-8"><title>{html_title}</title>{there}\n'
        (Path(app.outdir) / "index.html").write_text(page)


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_navigation)
    app.connect("build-finished", add_index)
