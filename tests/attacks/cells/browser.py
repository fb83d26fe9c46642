# ruff: noqa: E501 - payloads are not wrapped
"""Payloads for the browser in which a run's notebook is opened.

Each tries to load one address of the canary server, by a way of its own. They are displayed by a
kernel, pass through what the program exports, are turned into a page, and are opened in a real
browser. ``ADDRESS`` stands for the canary's address.
"""

from typing import Any

PAYLOADS: dict[str, tuple[str, dict[str, Any]]] = {
    "script": ("A script", {"text/html": "<script>fetch('ADDRESS')</script>"}),
    "script_source": ("A script from elsewhere", {"text/html": "<script src='ADDRESS'></script>"}),
    "image": ("An image from elsewhere", {"text/html": "<img src='ADDRESS'>"}),
    "image_error": ("An image's error handler", {"text/html": "<img src=x onerror=\"fetch('ADDRESS')\">"}),
    "frame": ("A frame", {"text/html": "<iframe src='ADDRESS'></iframe>"}),
    "frame_document": (
        "A frame with a document of its own",
        {"text/html": "<iframe srcdoc=\"<script>fetch('ADDRESS')</script>\"></iframe>"},
    ),
    "svg_in_html": ("SVG's load handler in HTML", {"text/html": "<svg onload=\"fetch('ADDRESS')\"></svg>"}),
    "svg": (
        "SVG as an image of its own",
        {"image/svg+xml": "<svg xmlns='http://www.w3.org/2000/svg' onload=\"fetch('ADDRESS')\">"
         "<image href='ADDRESS'/></svg>"},
    ),
    "javascript": ("JavaScript output", {"application/javascript": "fetch('ADDRESS')"}),
    "markdown": ("HTML within Markdown", {"text/markdown": "<img src='ADDRESS'>"}),
    "markdown_image": ("An image in Markdown", {"text/markdown": "![x](ADDRESS)"}),
    "style": ("A style's url()", {"text/html": "<div style=\"background:url('ADDRESS')\">x</div>"}),
    "style_sheet": ("A style sheet", {"text/html": "<style>@import url('ADDRESS');</style>"}),
    "link": ("A linked style sheet", {"text/html": "<link rel='stylesheet' href='ADDRESS'>"}),
    "object": ("An embedded object", {"text/html": "<object data='ADDRESS'></object>"}),
    "video": ("A video and its poster", {"text/html": "<video poster='ADDRESS' src='ADDRESS'></video>"}),
    "input_focus": (
        "An element that takes the focus",
        {"text/html": "<input autofocus onfocus=\"fetch('ADDRESS')\">"},
    ),
    "details": ("An opened details element", {"text/html": "<details open ontoggle=\"fetch('ADDRESS')\">x"}),
    "table": (
        "A script in a table that looks like pandas's",
        {"text/html": "<table class='dataframe'><tr><td><img src=x onerror=\"fetch('ADDRESS')\"></td>"
         "<td background='ADDRESS' style=\"background:url('ADDRESS')\">1</td></tr></table>"},
    ),
    "mutation": (
        "Markup that changes its meaning when it is parsed again",
        {"text/html": "<table><tr><td><math><mtext><table><mglyph><style><!--</style>"
         "<img title=\"--&gt;&lt;img src=ADDRESS&gt;\"></td></tr></table>"},
    ),
    "unclosed": ("A tag that swallows what follows", {"text/html": "<table><tr><td></td></tr></table><img src='ADDRESS' alt='"}),
    "in_plain_text": ("Markup in plain text", {"text/plain": "</pre><img src='ADDRESS'>"}),
    "in_json": ("Markup in JSON", {"application/json": "{\"a\": \"<img src='ADDRESS'>\"}"}),
    "in_stream": ("Markup in printed text", {"stream": "</pre></div><img src='ADDRESS'>"}),
    "in_error": ("Markup in an error's message", {"error": "</pre></div><img src='ADDRESS'>"}),
    "widget": (
        "A widget's state",
        {"application/vnd.jupyter.widget-view+json": {"model_id": "x"},
         "text/html": "<script type='application/vnd.jupyter.widget-state+json'>{}</script>"
         "<img src='ADDRESS'>"},
    ),
    "refresh": ("A page that goes elsewhere", {"text/html": "<meta http-equiv='refresh' content='0;url=ADDRESS'>"}),
}  # fmt: skip
"""Name -> title and MIME bundle; ``stream`` and ``error`` stand for those kinds of output."""

NEVER_LIVE = (
    "svg",
    "javascript",
    "unclosed",
    "in_plain_text",
    "in_json",
    "in_stream",
    "in_error",
    "mutation",
)
"""Payloads that the page maker escapes by itself, or only a sanitiser would bring to life."""
