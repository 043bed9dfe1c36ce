#!/usr/bin/env python3
"""Builds the site from docs/ with mkdocs: BUILD/docs has the pages for mkdocs, BUILD/site has the site.

A forge can show the pages under docs/ without changes. For the site
  * links that leave docs/ lead to the pages that replace their targets: the reference for headers,
    examples.md for example programs, contributing.md for CONTRIBUTING.md, index.md for README.md;
  * names of the library in code become links to the reference;
  * the marks of the tests after ``` are dropped;
and the reference, the examples and the list of design notes are written. The search shows design notes last.
Usage: build_site.py BUILD [--strict]
"""
import glob
import json
import os
import re
import shutil
import subprocess
import sys

import reference
from pages import BLOCK, markdown_pages, read, write

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", ".."))
DOCS = os.path.join(ROOT, "docs")
DESIGN_BOOST = 1e-5  # of the score in a search: a hit in a title counts 1000 times as much as one in a text


def missing():
    """What the site needs and does not have, as text; "" if nothing is missing."""
    if not shutil.which("mkdocs"):
        return "mkdocs is not installed (Debian: apt-get install mkdocs-material)"
    # mkdocs may run in another Python than this program.
    theme = "import mkdocs.utils, sys; sys.exit('material' not in mkdocs.utils.get_theme_names())"
    for python in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([python, "-c", theme], capture_output=True).returncode == 0:
            return ""
    return "the theme Material of mkdocs is not installed (Debian: apt-get install mkdocs-material)"


def site_page(path):
    """The page of the site for a file or folder of the tree, both as relative paths; None: there is no page."""
    known = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "docs": "index.md",
             "docs/design": "design/index.md", "examples": "examples.md",
             "include/cflux": "reference/index.md", "include/cflux.h": "reference/index.md",
             "include/cflux/op.def": "reference/backend.md"}
    if path in known:
        return known[path]
    header = re.fullmatch(r"include/cflux/(\w+)\.h", path)
    if header:
        return f"reference/{header.group(1)}.md"
    if path == "include/cflux.f90":
        return "fortran.md"
    if re.fullmatch(r"examples/\w+\.(c|f90)", path):
        return "examples.md"
    return path[len("docs/"):] if path.startswith("docs/") else None


def link_for_site(target, source, page):
    """Rewrites the target of a link on `page`, which is `source` in the tree."""
    if re.match(r"[a-z]+:|#", target):
        return target
    path, _, anchor = target.partition("#")
    inside = os.path.relpath(os.path.normpath(os.path.join(os.path.dirname(source), path)), ROOT)
    to = site_page(inside)
    if to is None:
        raise SystemExit(f"{source}: the site has no page for the link to {target}")
    example = re.fullmatch(r"examples/(\w+)\.(c|f90)", inside)
    anchor = example_anchor(os.path.basename(inside)) if example else anchor
    return os.path.relpath(to, os.path.dirname(page) or ".") + (f"#{anchor}" if anchor else "")


def text_for_site(text, source, page, pages):
    """A piece of a page outside code blocks."""
    def link(m):
        return f"]({link_for_site(m.group(1), source, page)})"

    def name(m):
        called = re.match(r"(?:fx|FX)_\w+", m.group(1))
        where = pages.target(called.group(0), ".md") if called else None
        if not where or m.group(0) != f"`{m.group(1)}`":
            return m.group(0)
        to = os.path.relpath("reference/" + where, os.path.dirname(page) or ".")
        return f"[{m.group(0)}]({to})"
    lines = []
    for line in text.split("\n"):
        if not line.startswith("#"):
            # Not inside the text of a link.
            line = re.sub(r"(?<!\[)`([^`]+)`(?!\])", name, re.sub(r"\]\(([^)\s]+)\)", link, line))
        lines.append(line)
    return "\n".join(lines)


def block_for_site(block):
    output = block["info"] in ("text output", "text log")
    info = " { .text .output }" if output else (block["info"].split() or [""])[0]
    return f"```{info}\n{block['text']}```"


def for_site(source, page, pages):
    text, out, at = read(source), "", 0
    for block in BLOCK.finditer(text):
        out += text_for_site(text[at:block.start()], source, page, pages) + block_for_site(block)
        at = block.end()
    return out + text_for_site(text[at:], source, page, pages)


def title_of(path):
    return re.search(r"^# (.*)$", read(path), re.M).group(1)


def example_anchor(name):
    """xor for xor.c, xor-f90 for xor.f90."""
    return name[:-2] if name.endswith(".c") else name.replace(".", "-")


def examples_page():
    """Every example program, whole: the comment at its head says what it is."""
    out = ["# Examples", "", "Complete programs; `make` builds those in C into `build/examples`.", ""]
    folder = os.path.join(ROOT, "examples")
    for name in sorted(n for n in os.listdir(folder) if n.endswith((".c", ".f90"))):
        language = "c" if name.endswith(".c") else "fortran"
        out += [f"## {name} {{ #{example_anchor(name)} }}", "", f"```{language}", read(os.path.join(folder, name)).rstrip(), "```", ""]
    return "\n".join(out)


def design_page():
    folder = os.path.join(DOCS, "design")
    out = ["# Design notes", "", "Why things are as they are: context, decision, alternatives, consequences.", ""]
    for name in sorted(n for n in os.listdir(folder) if n.endswith(".md")):
        out.append(f"- [{title_of(os.path.join(folder, name))}]({name})")
    return "\n".join(out) + "\n"


def stage(build):
    """Puts the pages and the configuration together in BUILD/docs. Returns the folder of the pages."""
    folder = os.path.join(build, "docs")
    shutil.rmtree(folder, ignore_errors=True)
    target = os.path.join(folder, "pages")
    pages = reference.Pages(ROOT)
    for source in markdown_pages(ROOT):
        page = "contributing.md" if source.endswith("CONTRIBUTING.md") else os.path.relpath(source, DOCS)
        if not page.startswith(".."):  # README.md: the site has its own first page
            design = page.startswith("design/")
            head = f"---\nsearch:\n  boost: {DESIGN_BOOST}\n---\n" if design else ""
            write(os.path.join(target, page), head + for_site(source, page, pages))
    write(os.path.join(target, "examples.md"), examples_page())
    write(os.path.join(target, "design", "index.md"), design_page())
    for name in ("site.css", "planning.svg"):
        write(os.path.join(target, name), read(os.path.join(DOCS, name)))
    shutil.copytree(os.path.join(DOCS, "overrides"), os.path.join(folder, "overrides"))
    names = pages.write(os.path.join(target, "reference"))
    config = read(os.path.join(DOCS, "mkdocs.yml")).rstrip("\n") + "\n"
    config += "".join(f"      - {n}.h: reference/{n}.md\n" for n in names)
    write(os.path.join(folder, "mkdocs.yml"), config)
    return target


def boost_for_old_theme(site):
    """Material before 8.3 (Debian 12) ignores the boost of a page: writes it into the index, and lets the
    worker pass it to lunr."""
    index = os.path.join(site, "search", "search_index.json")
    content = json.loads(read(index))
    if any("boost" in entry for entry in content["docs"]):
        return
    for entry in content["docs"]:
        if entry["location"].startswith("design/"):
            entry["boost"] = DESIGN_BOOST
    write(index, json.dumps(content))
    for worker in glob.glob(os.path.join(site, "assets", "javascripts", "workers", "search.*.js")):
        add = r"for\(let (\w+) of (\w+)\)this\.add\(\1\)"
        text, found = re.subn(add, r"for(let \1 of \2)this.add(\1,{boost:\1.boost||1})", read(worker))
        if found != 1:
            raise SystemExit(f"{worker}: the place where it fills its index was not found")
        write(worker, text)


def main():
    build = os.path.abspath(sys.argv[1])
    if missing():
        sys.exit(missing())
    stage(build)
    command = ["mkdocs", "build", "--quiet", "--clean", "-f", os.path.join(build, "docs", "mkdocs.yml")]
    done = subprocess.run(command + sys.argv[2:])
    if done.returncode == 0:
        boost_for_old_theme(os.path.join(build, "site"))
        print(f"the site is {os.path.join(build, 'site', 'index.html')}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
