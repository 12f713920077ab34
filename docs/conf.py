"""The documentation as a site: `make docs` draws the lenses (tools/lens_gallery.py) and builds it, generated pages
(tools/site_pages.py) first. Pages are Markdown (MyST); tutorials are notebooks, which the build executes."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tools"))

import defocus  # noqa: E402

project = "Defocus"
author = "The Defocus authors"
version = release = defocus.__version__
html_title = f"Defocus {version}"

# Without myst-nb, which brings Jupyter along, the code of notebooks is shown and not run: a build of the text alone.
NOTEBOOKS = importlib.util.find_spec("myst_nb") is not None and "DEFOCUS_DOCS_TEXT" not in os.environ
extensions = ["myst_nb" if NOTEBOOKS else "myst_parser", "sphinx.ext.autodoc"]
html_math_renderer = "mathml"  # browsers draw it by themselves; MathJax would be fetched from elsewhere
html_show_copyright = False
highlight_language = "none"  # of blocks that name no language: commands
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # results begin where their script began
nb_execution_mode = "cache"
nb_execution_timeout = 900
nb_execution_raise_on_error = True
nb_execution_in_temp = True  # what they write goes with it
nb_merge_streams = True
exclude_patterns = ["jupyter_execute"]

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 100
nitpicky = True

html_theme = "furo" if importlib.util.find_spec("furo") else "alabaster"
html_static_path = ["static"]
html_css_files = ["site.css"]
templates_path: list[str] = []


def setup(app: Any) -> None:
    """What the pages need beyond Sphinx: links to results, docstrings that are no reStructuredText, public names."""
    app.add_html_math_renderer("mathml", (_inline_formula, None), (_formula, None))
    app.connect("builder-inited", _generated_pages)
    app.connect("source-read", _results_inside)
    app.connect("autodoc-process-docstring", _docstring)
    app.connect("missing-reference", _public_name)
    if NOTEBOOKS:
        _encrypted_kernels()
    else:
        from sphinx.directives.code import CodeBlock

        class CodeCell(CodeBlock):
            """A cell of a notebook as a block of code."""

            option_spec = CodeBlock.option_spec | {"tags": lambda text: text}

            def run(self) -> list[Any]:
                self.arguments = ["python"]
                return super().run()

        app.add_directive("code-cell", CodeCell)


def _encrypted_kernels() -> None:
    """Let kernels of notebooks encrypt what they say: others on the machine could read along, and each kernel warns."""
    from nbclient import NotebookClient

    create = NotebookClient.create_kernel_manager

    def create_encrypted(client: Any) -> Any:
        manager = create(client)
        manager.transport_encryption = "auto"  # where kernel and client know how to, which are those that warn
        return manager

    NotebookClient.create_kernel_manager = create_encrypted


def _mathml(node: Any, *, as_block: bool) -> str:
    from docutils.utils.math.latex2mathml import tex2mathml

    return str(tex2mathml(node.astext(), as_block=as_block))


def _inline_formula(writer: Any, node: Any) -> None:
    from docutils.nodes import SkipNode

    writer.body.append(_mathml(node, as_block=False))
    raise SkipNode


def _formula(writer: Any, node: Any) -> None:
    from docutils.nodes import SkipNode

    writer.body.append(f'<div class="math">{_mathml(node, as_block=True)}</div>')
    raise SkipNode


def _generated_pages(app: Any) -> None:
    """What follows from the package; of the gallery at least its list."""
    from lens_gallery import draw_gallery
    from site_pages import write_pages

    folder = Path(app.srcdir) / "generated"
    write_pages(folder)
    if not (folder / "gallery" / "index.md").exists():
        draw_gallery(folder / "gallery", ())


def _results_inside(_: Any, name: str, source: list[str]) -> None:
    """Links to benchmarks/results, which lie beside the documentation, go to their copies in it."""
    up = "../" * name.count("/")
    source[0] = re.sub(r"\]\((?:\.\./)+benchmarks/results/([\w.]+)\)", rf"]({up}generated/results/\1)", source[0])
    source[0] = re.sub(r"\]\((?:\.\./)+benchmarks/results\)", rf"]({up}generated/results/index.md)", source[0])


def _docstring(_app: Any, _kind: str, _name: str, _value: Any, _options: Any, lines: list[str]) -> None:
    """Our docstrings as reStructuredText: `code` is code, signs are signs, what is indented stays as it is."""
    out: list[str] = []
    for paragraph in "\n".join(lines).strip("\n").split("\n\n"):
        if any(line.startswith(" ") for line in paragraph.splitlines()):
            out += ["::", "", *(f"   {line}" for line in paragraph.splitlines()), ""]
            continue
        parts = re.split(r"(`[^`]+`)", paragraph)
        texts = [f"\\ `{part}`\\ " if part.startswith("`") else re.sub(r"([*|_@\\])", r"\\\1", part) for part in parts]
        out += [*"".join(texts).splitlines(), ""]
    lines[:] = out


def _public_name(app: Any, env: Any, node: Any, content: Any) -> Any:
    """A link from where a thing is defined to where it is described; private types and those of others are words."""
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py":
        return None
    name = target.rpartition(".")[2]
    own = target.startswith("defocus.") or "." not in target
    if own:
        from site_pages import public_home

        value = _value(target) if "." in target else None
        try:
            home = public_home(name, value)
        except IndexError:
            home = None
        if home is not None:
            python = env.get_domain("py")
            found = python.resolve_xref(env, node["refdoc"], app.builder, "obj", f"{home}.{name}", node, content)
            if found is not None:
                return found
        if "." in target and value is None:
            return None  # nothing of ours: a mistake, and a warning
    return content


def _value(target: str) -> Any:
    """What stands at a path of the package; None where there is nothing."""
    parts = target.split(".")
    for split in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:split]))
        except ImportError:
            continue
        for part in parts[split:]:
            value = (
                inspect.getattr_static(value, part, None) if not inspect.ismodule(value) else getattr(value, part, None)
            )
        return value
    return None
