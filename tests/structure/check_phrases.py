#!/usr/bin/env python3
"""Refuses the phrases of phrases.txt, each with a better wording, where people read:

  * README.md, CONTRIBUTING.md and the pages of docs/ (not docs/design), their code blocks included,
  * the public headers and the examples,
  * string literals of src/ and tools/: messages, help texts and the manual.
Usage: check_phrases.py [root]
"""
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
LEAST_PHRASES, LEAST_FILES, LEAST_STRINGS = 40, 400, 3000
# Comments and characters are matched so that their quotes do not begin a string.
TOKEN = re.compile(r"/\*.*?\*/|//[^\n]*|'(?:\\.|[^'\\\n])*'|(?P<string>\"(?:\\.|[^\"\\\n])*\")", re.S)


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def phrases(path):
    """(phrase, better wording) of each line."""
    rows = []
    for line in read(path).split("\n"):
        if line and not line.startswith("#"):
            phrase, arrow, better = line.partition(" => ")
            if not arrow:
                raise SystemExit(f"{path}: expected \"phrase => better wording\", got \"{line}\"")
            rows.append((phrase, better))
    return rows


# Between two words: blanks, the edge of a line of a comment, the edge of a string.
GAP = re.compile(r"(?:\s|\\n|\*(?!/)|\")+")


def pattern_of(phrases_):
    """One pattern for all phrases, in a text with single blanks. "There is no X" says that X is missing."""
    one_word = {" ".join(r"\w+" if w == "…" else re.escape(w) for w in p.split()) for p in phrases_}
    return re.compile(r"\b(?<!there )(" + "|".join(sorted(one_word, key=len, reverse=True)) + r")\b")


def strings(text):
    """The file with everything but its string literals blanked: line numbers stay."""
    out, at, count = [], 0, 0
    for m in TOKEN.finditer(text):
        out.append(re.sub(r"\S", ";" if m["string"] else " ", text[at:m.start()]))
        out.append(m[0] if m["string"] else re.sub(r"[^\n]", " ", m[0]))
        count += bool(m["string"])
        at = m.end()
    return "".join(out), count


def files(root):
    """(path, are only its string literals read?)"""
    yield os.path.join(root, "README.md"), False
    yield os.path.join(root, "CONTRIBUTING.md"), False
    for top, endings, only_strings in (("docs", (".md",), False), ("examples", (".c",), False),
                                       ("include", (".h", ".hpp", ".def"), False), ("src", (".c", ".h"), True), ("tools", (".c", ".h"), True)):
        for folder, dirs, names in os.walk(os.path.join(root, top)):
            dirs[:] = sorted(d for d in dirs if not (top == "docs" and d == "design"))
            for name in sorted(names):
                if name.endswith(endings):
                    yield os.path.join(folder, name), only_strings


def found_in(text, pattern):
    """(line, phrase) of each match."""
    plain = GAP.sub(" ", text.lower())
    if not pattern.search(plain):
        return
    # Once more with a mark where a line ends: it stands in a gap.
    marked = GAP.sub(lambda m: " " + "\0" * m[0].count("\n"), text.lower())
    without, lines, line = [], [], 1
    for c in marked:
        if c == "\0":
            line += 1
        else:
            without.append(c)
            lines.append(line)
    for m in pattern.finditer("".join(without)):
        yield lines[m.start()], m[1]


def check(root, rows):
    errors, nfiles, nstrings = [], 0, 0
    pattern, better = pattern_of([p for p, _ in rows]), dict(rows)
    for path, only_strings in files(root):
        text, count = strings(read(path)) if only_strings else (read(path), 0)
        nfiles, nstrings = nfiles + 1, nstrings + count
        for line, phrase in found_in(text, pattern):
            errors.append(f"{os.path.relpath(path, root)}:{line}: \"{phrase}\"; better: {better.get(phrase, 'name it')}")
    return errors, nfiles, nstrings


def main():
    root = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "..", ".."))
    rows = phrases(os.path.join(HERE, "phrases.txt"))
    errors, nfiles, nstrings = check(root, rows)
    for count, least, what in ((len(rows), LEAST_PHRASES, "phrases"), (nfiles, LEAST_FILES, "files"),
                               (nstrings, LEAST_STRINGS, "strings")):
        if count < least:
            errors.append(f"found {count} {what} only, expected at least {least}")
    for e in errors:
        print(e, file=sys.stderr)
    print(f"{len(rows)} phrases, {nfiles} files, {nstrings} strings, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
