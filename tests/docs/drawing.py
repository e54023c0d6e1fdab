"""The pictures of the docs: `make pictures` draws those whose source has changed, with Graphviz.

    python -m tests.docs.drawing

A picture takes its colours from the page that it is embedded in (docs/hooks.py), or else from the
reader's light or dark mode. It contains the digest of its source, so that a test finds a picture
that is older than its source.
"""

from __future__ import annotations

import hashlib
import math
import re
import shutil
import subprocess
import sys

from ..test_architecture import LAYERS, OTHERS, PACKAGE, ROOT
from .pages import DOCS

PICTURES = DOCS / "pictures"
#: The number of boxes that a layer shows side by side.
ACROSS = 5

STYLE = """
.picture { --ink: var(--md-typeset-color, #24292f); background: var(--md-default-bg-color, #fff) }
@media (prefers-color-scheme: dark) {
  .picture { --ink: var(--md-typeset-color, #d1d5db); background: var(--md-default-bg-color, #0d1117) }
}
.picture text { fill: var(--ink); font-family: Helvetica, Arial, "Liberation Sans", sans-serif }
.picture .node path, .picture .cluster path { fill: var(--ink); fill-opacity: .04; stroke: var(--ink); stroke-opacity: .45 }
.picture .ours path { fill: #5c6bc0; fill-opacity: .2; stroke: #5c6bc0; stroke-opacity: 1 }
.picture .good path { fill: #43a047; fill-opacity: .2; stroke: #43a047; stroke-opacity: 1 }
.picture .wait path { fill: #fb8c00; fill-opacity: .2; stroke: #fb8c00; stroke-opacity: 1 }
.picture .bad path { fill: #e53935; fill-opacity: .2; stroke: #e53935; stroke-opacity: 1 }
.picture .edge path { stroke: var(--ink); stroke-opacity: .7 }
.picture .edge polygon { fill: var(--ink); stroke: none; fill-opacity: .7 }
.picture .rare path { stroke-dasharray: 4 3 }
"""


def layers() -> str:
    """Write the source of the map: one layer on the other, each with its folders and modules."""
    lines = [
        "digraph layers {",
        "  rankdir=TB nodesep=0.14 ranksep=0.16 fontname=Helvetica fontsize=13 labeljust=l",
        (
            '  node [shape=box style=rounded fontname=Helvetica fontsize=12 margin="0.1,0.05" '
            "height=0.3 width=0.1]"
        ),
        "  edge [style=invis]",
    ]
    above: list[str] = []
    for number, (title, names) in reversed(list(enumerate(LAYERS.items()))):
        lines.append(f'  subgraph cluster_{number} {{ label="{title}" style=rounded margin=9')
        boxes = [box(name) for name in shown(names)]
        across = math.ceil(len(boxes) / math.ceil(len(boxes) / ACROSS))
        for start in range(0, len(boxes), across):
            line = boxes[start : start + across]
            lines += [f'    "{label}" [class={kind}]' for label, kind in line]
            labels = [f'"{label}"' for label, _ in line]
            lines.append(f"    {{ rank=same {' -> '.join(labels)} }}")
            # Invisible edges put one line below the other.
            lines += [f"    {upper} -> {labels[len(labels) // 2]}" for upper in above]
            above = labels
        lines.append("  }")
    return "\n".join([*lines, "}", ""])


def shown(names: tuple[str, ...]) -> list[str]:
    """Return what a layer shows: of `contrib` its folders."""
    if names != ("contrib",):
        return list(names)
    return sorted(
        f"contrib.{path.parent.name}" for path in (ROOT / "contrib").glob("*/__init__.py")
    )


def box(name: str) -> tuple[str, str]:
    """Return a box's label and class: does the folder or module know Django?"""
    path = ROOT / name.replace(".", "/")
    label = (
        "__init__.py"
        if name == PACKAGE
        else f"{name.replace('.', '/')}{'/' if path.is_dir() else '.py'}"
    )
    return label, "plain" if "django" in OTHERS.get(name, "django").split() else "ours"


def sources() -> dict[str, str]:
    """Return each picture's source by its name."""
    return {"layers": layers()} | {
        path.stem: path.read_text(encoding="utf-8") for path in PICTURES.glob("*.dot")
    }


def stamp(source: str) -> str:
    """Return the digest that a picture contains: of its source, and of the way it is drawn."""
    return f"source: {hashlib.sha256((source + STYLE).encode()).hexdigest()}"


def stale() -> dict[str, str]:
    """Return the sources that have changed since their pictures were drawn."""
    drawn = {path.stem: path.read_text(encoding="utf-8") for path in PICTURES.glob("*.svg")}
    return {
        name: source
        for name, source in sources().items()
        if stamp(source) not in drawn.get(name, "")
    }


def draw(source: str) -> str:
    """Return an SVG without Graphviz's own colours, ids and tooltips."""
    done = subprocess.run(
        ["dot", "-Tsvg"], input=source, capture_output=True, text=True, timeout=60, check=True
    )
    svg = done.stdout[done.stdout.index("<svg") :]
    svg = re.sub(r"<!--.*?-->\n|<title>.*?</title>\n", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<polygon [^>]*/>\n", "", svg, count=1)  # the paper
    svg = re.sub(r' (?:id|xmlns:xlink|font-family)="[^"]*"', "", svg)
    svg = svg.replace("<svg ", '<svg class="picture" ', 1)
    return svg.replace(">", f">\n<!-- {stamp(source)} -->\n<style>{STYLE}</style>", 1)


def main() -> int:
    changed = stale()
    if changed and not shutil.which("dot"):
        print(
            f"To draw {', '.join(changed)} again, install Graphviz: its command dot.",
            file=sys.stderr,
        )
        return 1
    for name, source in changed.items():
        (PICTURES / f"{name}.svg").write_text(draw(source), encoding="utf-8")
        print(f"Drawn: docs/pictures/{name}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
