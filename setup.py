"""What pyproject.toml cannot say: the description that an index shows, which is README.md as it can stand alone.

An index has none of the repository's files. With a `Repository` among the project's URLs, pictures and links
of README.md become absolute; without one, pictures are left out and links become their texts.
"""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
RELATIVE = r"(?!https?://|#)([^)\s]+)"


def description() -> str:
    """README.md without links that only the repository can follow."""
    text = (ROOT / "README.md").read_text("utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    base = project.get("urls", {}).get("Repository", "").rstrip("/")
    if base:
        text = re.sub(rf"!\[([^\]]*)\]\({RELATIVE}\)", rf"![\1]({base}/raw/main/\2)", text)
        return re.sub(rf"\[([^\]]*)\]\({RELATIVE}\)", rf"[\1]({base}/blob/main/\2)", text)
    text = re.sub(rf"!\[[^\]]*\]\({RELATIVE}\)\n*", "", text)
    return re.sub(rf"\[([^\]]*)\]\({RELATIVE}\)", r"\1", text)


setup(long_description=description(), long_description_content_type="text/markdown")
