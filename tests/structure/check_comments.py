#!/usr/bin/env python3
"""Refuses in the comments of C files:

  * two blanks between words, once in a comment: an edit left them. Tables have more than one gap;
  * a line that ends early although the next word fits: an edit left it. Only lines with much free space count, and no
    line that ends a sentence or a list, is indented further, or has columns;
  * a paragraph whose line has a wide gap after JOINED characters: a formatter joined the rows of a table, because one of
    them was too long.

In the folders of SHARES at least the share LEAST_SHARE of the lines must be comments: the reasons for their code.
Usage: check_comments.py [root]
"""
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDERS, ENDINGS, LEAST_COMMENTS = ("include", "src", "tools", "examples", "tests", "bench"), (".c", ".h", ".hpp", ".cc", ".cl", ".def"), 10000
TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|(?P<comment>/\*.*?\*/)', re.S)
QUOTED = re.compile(r'"[^"\n]*"|`[^`\n]*`')
SHARES, LEAST_SHARE = ("src/plan", "src/exec", "src/backends/cpu", "src/backends/gpu"), 0.2
JOINED = 24
WIDTH = 78  # of 100: a line that is shorter than that with the next word is not wrapped by a formatter


def prose(line):
    """The words of a line of a comment, without its frame; quoted text may contain anything."""
    return QUOTED.sub("q", re.sub(r"\s*(?:\*/)?\s*\\?$", "", re.sub(r"^\s*(?:/\*+|\*(?!/))? ?", "", line)))


def gaps(lines):
    """The line with the only gap of a comment, if it has two blanks."""
    found = [(i, g[0]) for i, line in enumerate(lines) for g in re.finditer(r"(?<=\S) {2,}(?=\S)", prose(line))]
    return [found[0][0]] if len(found) == 1 and len(found[0][1]) == 2 else []


def joined(lines):
    """The lines of joined tables. A row that is not joined has its first gap at its beginning."""
    for i, line in enumerate(lines):
        first = re.search(r"(?<=\S) {2,}(?=\S)", prose(line))
        if first and not prose(line).startswith(" ") and first.start() > JOINED and len(first[0]) > 2:
            yield i


def ragged(lines, indent):
    """The lines that end although the first word of the next one fits."""
    for i, (line, after) in enumerate(zip(lines, lines[1:])):
        text, word = prose(line), prose(after).split(" ")[0]
        if text.strip() and word and not text.startswith(" ") and "  " not in text + prose(after) and text[-1] not in ":.;" \
                and word not in "*-" and (indent if i == 0 else 0) + len(line) + 1 + len(word) <= WIDTH:
            yield i


def check(root):
    errors, ncomments = [], 0
    for top in FOLDERS:
        for folder, dirs, names in os.walk(os.path.join(root, top)):
            dirs.sort()
            for name in sorted(n for n in names if n.endswith(ENDINGS)):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as f:
                    text = f.read()
                for m in TOKEN.finditer(text):
                    if not m["comment"]:
                        continue
                    ncomments += 1
                    before = text[text.rfind("\n", 0, m.start()) + 1:m.start()]
                    lines, first = m[0].split("\n"), text.count("\n", 0, m.start()) + 1
                    where = os.path.relpath(path, root)
                    errors += [f"{where}:{first + i}: two blanks between words" for i in gaps(lines)]
                    if not before.strip():
                        errors += [f"{where}:{first + i}: a wide gap in a paragraph" for i in joined(lines)]
                        errors += [f"{where}:{first + i}: the next line's first word fits" for i in ragged(lines, len(before))]
    return errors, ncomments


def share(texts):
    """The lines of comments among the lines that are not empty."""
    lines = sum(bool(line.strip()) for text in texts for line in text.split("\n"))
    return sum(m["comment"].count("\n") + 1 for text in texts for m in TOKEN.finditer(text) if m["comment"]) / max(lines, 1)


def check_shares(root, errors):
    for top in SHARES:
        folder = os.path.join(root, *top.split("/"))
        texts = []
        for name in sorted(n for n in os.listdir(folder) if n.endswith((".c", ".h"))):
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                texts.append(f.read())
        found = share(texts)
        print(f"{top}: {found:.3f} of the lines are comments")
        if found < LEAST_SHARE:
            errors.append(f"{top}: {found:.3f} of the lines are comments, expected at least {LEAST_SHARE}: give reasons")


def main():
    root = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "..", ".."))
    errors, ncomments = check(root)
    check_shares(root, errors)
    if ncomments < LEAST_COMMENTS:
        errors.append(f"found {ncomments} comments only, expected at least {LEAST_COMMENTS}")
    for e in errors:
        print(e, file=sys.stderr)
    print(f"{ncomments} comments, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
