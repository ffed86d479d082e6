"""The page: one file that holds its data, its style and its program, and asks nobody for anything.

Two things keep it safe. Everything that a model or a game wrote reaches the document as text nodes alone (the program
never sets HTML), and a content security policy lets nothing run but the page's own program, by its hash, and nothing
load at all. The data stand in the page as JSON: an index, and per game its trajectories, compressed each by itself,
so that a page of a thousand games opens at once and unpacks what is looked at.
"""

import base64
import hashlib
import html
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from string import Template
from typing import Any

#: The page's program, in the order in which it is run.
PROGRAM = ("base.js", "charts.js", "overview.js", "run.js", "games.js", "house.js", "replay.js", "main.js")


@dataclass(frozen=True, slots=True)
class Content:
    """What a page shows: `index` at once, and one entry of `details` for every game of it when it is opened."""

    index: Mapping[str, Any]
    details: Sequence[Any]


def render(content: Content, title: str) -> str:
    """The whole page. The same content gives the same page, byte for byte."""
    assets = files("alfworld_rl.analysis.report") / "assets"
    style = (assets / "style.css").read_text(encoding="utf-8")
    parts = "\n".join((assets / name).read_text(encoding="utf-8") for name in PROGRAM)
    program = f'(function () {{\n"use strict";\n{parts}\n}})();'
    return Template((assets / "page.html").read_text(encoding="utf-8")).substitute(
        title=html.escape(title),
        policy=(
            f"default-src 'none'; script-src {_hash(program)}; style-src {_hash(style)}; base-uri 'none'; "
            "form-action 'none'"
        ),
        style=style,
        program=program,
        index=_json({"title": title} | dict(content.index)),
        details=_json([_packed(one) for one in content.details]),
    )


def _json(value: Any) -> str:
    """JSON that can stand in a script element: nothing in it ends the element or begins a comment."""
    return _dumped(value).replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _packed(value: Any) -> str:
    return base64.b64encode(zlib.compress(_dumped(value).encode(), 9)).decode("ascii")


def _dumped(value: Any) -> str:
    """JSON as a browser reads it: no NaN, and no lone surrogates, which UTF-8 cannot hold. Files may hold both."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "replace").decode("utf-8")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(one) for name, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
