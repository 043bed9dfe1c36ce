#!/usr/bin/env python3
"""Links, anchors and names in README.md, CONTRIBUTING.md and docs/.

  * A link leads to a file or folder of the tree, and its anchor to a heading of that page. (Links to
    elsewhere are not followed.)
  * A name fx_… or FX_… in code outside blocks is public in C or in the Fortran module, or a variable of the environment that the
    sources read (`fx_…` with three dots means several names).
  * Every page is in the navigation of docs/mkdocs.yml, and that names no missing page.
  * The design notes use one heading for one thing: "Alternatives" for what was rejected.
Usage: check_pages.py [root]
"""
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "docs", "tools"))
from pages import BLOCK, markdown_pages, read  # noqa: E402

LEAST_LINKS, LEAST_NAMES, LEAST_PAGES, LEAST_NOTES = 60, 400, 20, 50
# Names that macros of the headers declare.
MACRO_NAMES = {"fx_plugin"}


def prose(text):
    """The page without its code blocks, line numbers kept."""
    return BLOCK.sub(lambda m: re.sub(r"[^\n]", "", m.group(0)), text)


def anchor(heading):
    """The anchor that a forge and mkdocs make of a heading."""
    plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain))


def anchors(path):
    return {anchor(h) for h in re.findall(r"^#+ (.*)$", prose(read(path)), re.M)}


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def check_links(root, path, errors):
    text, count = prose(read(path)), 0
    where = os.path.relpath(path, root)
    for m in re.finditer(r"(?<!`)\[[^\]\n]+\]\(([^)\s]+)\)", text):
        target, _, fragment = m.group(1).partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        count += 1
        to = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
        if not os.path.exists(to):
            errors.append(f"{where}:{line_of(text, m.start())}: there is no {m.group(1)}")
        elif fragment and to.endswith(".md") and fragment not in anchors(to):
            errors.append(f"{where}:{line_of(text, m.start())}: {target or 'the page'} has no heading #{fragment}")
    return count


def public_names(root):
    """Names of the headers and of the environment."""
    import headers
    names = set(headers.symbols(root))
    for folder, _, files in os.walk(os.path.join(root, "src")):
        for name in files:
            if name.endswith((".c", ".h")):
                names.update(re.findall(r"\"(FX_[A-Z_]+)\"", read(os.path.join(folder, name))))
    for line in re.findall(r"(?m)^    public :: (.*)$", read(os.path.join(root, "include", "cflux.f90"))):
        names.update(re.findall(r"\w+", line))
    return names | MACRO_NAMES


def added_names(page):
    """Names that a guide adds to the public headers (follow_guide.py)."""
    blocks = re.findall(r"^```c insert=include/\S+\n(.*?)^```", page, re.M | re.S)
    return {name for block in blocks for name in re.findall(r"\b(?:fx|FX)_\w+", block)}


def former_names_blanked(text):
    """The first column of a table of renamed names has names that are gone."""
    parts = re.split(r"(?m)^(?=## )", text)
    return "".join(re.sub(r"(?m)^\| [^|]* \|", lambda m: "|" + " " * (len(m[0]) - 2) + "|", part)
                   if part.startswith("## Renamed in ") else part for part in parts)


def check_names(root, path, known, errors):
    page, count = read(path), 0
    text, known = former_names_blanked(prose(page)), known | added_names(page)
    where = os.path.relpath(path, root)
    for code in re.finditer(r"`([^`\n]+)`", text):
        for m in re.finditer(r"\b(fx|FX)_\w+(…?)", code.group(1)):
            if m.group(2) or m.group(0).endswith("_"):
                continue
            count += 1
            if m.group(0) not in known:
                errors.append(f"{where}:{line_of(text, code.start())}: {m.group(0)} is not a public name")
    return count


def check_navigation(root, errors):
    """mkdocs.yml names every page but the design notes, which have a list of their own."""
    listed = set(re.findall(r":\s*(\S+\.md)\s*$", read(os.path.join(root, "docs", "mkdocs.yml")), re.M))
    made = {"reference/index.md", "design/index.md", "examples.md", "contributing.md"}
    there = {os.path.relpath(p, os.path.join(root, "docs")) for p in markdown_pages(root)}
    there = {p for p in there if not p.startswith(("design/", ".."))}
    errors += [f"docs/{p} is not in the navigation of docs/mkdocs.yml" for p in sorted(there - listed)]
    errors += [f"docs/mkdocs.yml names {p}, which does not exist" for p in sorted(listed - there - made)]
    return len(there)


def check_design_notes(root, errors):
    """Each heading of level 2 at most once, and only "Alternatives" for what was rejected."""
    count = 0
    for path in markdown_pages(root):
        where = os.path.relpath(path, root)
        if not where.startswith(os.path.join("docs", "design", "")):
            continue
        count += 1
        headings = re.findall(r"^## (.*)$", prose(read(path)), re.M)
        errors += [f"{where}: the heading \"{h}\"; better: Alternatives" for h in headings
                   if re.search(r"\breject|\bnot chosen|\bother options", h, re.I)]
        errors += [f"{where}: the heading \"{h}\" is used {headings.count(h)} times" for h in sorted(set(headings))
                   if headings.count(h) > 1]
    return count


def main():
    root = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "..", ".."))
    errors, known = [], public_names(root)
    links = sum(check_links(root, p, errors) for p in markdown_pages(root))
    names = sum(check_names(root, p, known, errors) for p in markdown_pages(root))
    listed = check_navigation(root, errors)
    notes = check_design_notes(root, errors)
    for count, least, what in ((links, LEAST_LINKS, "links"), (names, LEAST_NAMES, "names"), (listed, LEAST_PAGES, "pages"),
                               (notes, LEAST_NOTES, "design notes")):
        if count < least:
            errors.append(f"found {count} {what} only, expected at least {least}")
    for e in errors:
        print(e, file=sys.stderr)
    print(f"{listed} pages, {links} links, {names} names, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
