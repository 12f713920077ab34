"""Check every link of the built site and of the Markdown files in the repository; what leads nowhere is named.

`python tools/check_links.py build/site` reads all HTML files below that folder: a link inside must name a file that is
there and, with a `#`, an element of that page; pictures, styles and scripts must be files of the site, since nothing is
fetched from elsewhere. Of Markdown files, links must name a file of the tree, and a heading in it. Addresses of other
sites are not opened; they must be whole.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
ADDRESS = re.compile(r"https://[\w-]+(\.[\w-]+)+(:\d+)?([/?#]\S*)?|mailto:[^@\s]+@[\w-]+(\.[\w-]+)+")
CODE = re.compile(r"^(```+|~~~+).*?^\1|`[^`\n]*`", re.DOTALL | re.MULTILINE)


class Page(HTMLParser):
    """The links of an HTML page, the files that it loads, and the anchors that others may name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.anchors: set[str] = {"", "top"}  # a browser scrolls to the top for both
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what a tag refers to and what it is called."""
        values = {name: value for name, value in attrs if value is not None}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if "href" in values:
            (self.loaded if tag == "link" else self.links).add(values["href"])
        if "src" in values:
            self.loaded.add(values["src"])


def problems_of_site(folder: Path) -> Iterator[str]:
    """Every link of the HTML files below a folder that leads nowhere, with its page."""
    pages = {path.resolve(): Page(path.read_text("utf-8")) for path in sorted(folder.rglob("*.html"))}
    if not pages:
        yield f"{folder}: no HTML files"
    anchors = {path: page.anchors for path, page in pages.items()}
    for path, page in pages.items():
        for link in sorted(page.links | page.loaded):
            problem = _problem(link, path, anchors, folder.resolve())
            if problem is None and link in page.loaded and urlsplit(link).scheme not in ("", "data"):
                problem = "is loaded from another site"
            if problem is not None:
                yield f"{path.relative_to(folder.resolve())}: {link} {problem}"


def problems_of_markdown(root: Path, files: list[Path]) -> Iterator[str]:
    """Every link of Markdown files in a tree that leads nowhere; generated pages are looked for in the site alone."""
    headings = {path.resolve(): _headings(path.read_text("utf-8")) for path in files}
    for path in sorted(headings):
        text = CODE.sub("", path.read_text("utf-8"))
        links = re.findall(r"\]\(<?([^)\s>]+)[^)]*\)|^\[[^\]]+\]: *(\S+)|<(https?:[^>\s]*)>", text, re.MULTILINE)
        for link in sorted({part for parts in links for part in parts if part}):
            problem = None if "generated/" in link else _problem(link, path, headings, root.resolve())
            if problem is not None:
                yield f"{path.relative_to(root.resolve())}: {link} {problem}"


def _problem(link: str, page: Path, anchors: dict[Path, set[str]], root: Path) -> str | None:
    """What is wrong with a link of a page; None if nothing is."""
    parts = urlsplit(link)
    if parts.scheme == "data":
        return None
    if parts.scheme or parts.netloc:
        return None if ADDRESS.fullmatch(link) else "is no whole address"
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not target.is_relative_to(root):
        return "leads out of the folder"
    if not target.exists():
        return "names no file"
    if parts.fragment and unquote(parts.fragment) not in anchors.get(target, ()):
        return "names no place of that page"
    return None


def _headings(text: str) -> set[str]:
    """The anchors of the headings of a Markdown text: lower case, hyphens for blanks, no punctuation."""
    titles = re.findall(
        r"^#+ +(.+?)\s*$", re.sub(r"^(```+).*?^\1", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def markdown_files(root: Path) -> list[Path]:
    """The Markdown files that the repository holds: at its top, in docs and among the results."""
    pages = [path for path in root.glob("docs/**/*.md") if "generated" not in path.parts]
    return sorted([*root.glob("*.md"), *pages, *root.glob("benchmarks/**/*.md")])


def main() -> None:
    """Name what leads nowhere, and fail if anything does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path, help="folder of the built site")
    folder = parser.parse_args().site
    problems = [*problems_of_site(folder), *problems_of_markdown(ROOT, markdown_files(ROOT))]
    print("\n".join(problems), file=sys.stderr, end="\n" if problems else "")
    sys.exit(f"{len(problems)} links lead nowhere" if problems else None)


if __name__ == "__main__":
    main()
