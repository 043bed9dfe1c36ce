"""The pages that are written by hand, in Markdown: where they are, and their blocks of code."""
import os
import re

# A block with its info string and its text; it ends at a line of three backquotes alone.
BLOCK = re.compile(r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```[ \t]*$", re.M | re.S)


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def markdown_pages(root):
    """README.md and CONTRIBUTING.md where they are, and all below docs/, in the order of their names."""
    found = [p for p in (os.path.join(root, n) for n in ("README.md", "CONTRIBUTING.md")) if os.path.exists(p)]
    for folder, dirs, files in os.walk(os.path.join(root, "docs")):
        dirs[:] = sorted(d for d in dirs if d != "tools")
        found += [os.path.join(folder, n) for n in sorted(files) if n.endswith(".md")]
    return found
