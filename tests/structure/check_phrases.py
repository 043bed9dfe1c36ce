#!/usr/bin/env python3
"""Refuses the phrases of phrases.txt, and prints the better wording of each, in all texts that people read:

  * README.md, CONTRIBUTING.md and the pages of docs/, their code blocks included,
  * the public headers and the examples,
  * comments and string literals of src/ and tools/: reasons, messages, help texts and the manual,
  * comments of tests/ (its strings are also data of tests).
Usage: check_phrases.py [root]
"""
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
LEAST_PHRASES, LEAST_FILES, LEAST_TEXTS = 40, 700, 15000
# Comments, characters and strings are matched together, so that quotes in one do not begin another.
TOKEN = re.compile(r"(?P<comment>/\*.*?\*/|//[^\n]*)|'(?:\\.|[^'\\\n])*'|(?P<string>\"(?:\\.|[^\"\\\n])*\")", re.S)
PYTHON = re.compile(r'(?P<comment>#[^\n]*|"""(?:\\.|[^\\])*?""")|(?P<string>"(?:\\.|[^"\\\n])*"|' + r"'(?:\\.|[^'\\\n])*')", re.S)
# "is no longer" and similar comparisons are plain.
COMPARED = "longer|more|less|fewer|better|worse|larger|smaller|faster|slower|later|earlier|higher|lower|different"


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
    word = rf"(?!(?:{COMPARED})\b)[^\W\d_]+"
    one_word = {" ".join(word if w == "…" else re.escape(w) for w in p.split()) for p in phrases_}
    return re.compile(r"\b(?<!there )(" + "|".join(sorted(one_word, key=len, reverse=True)) + r")\b")


def texts(text, kinds, token=TOKEN):
    """The file with everything but its comments, strings or both blanked: line numbers stay."""
    out, at, count = [], 0, 0
    for m in token.finditer(text):
        kept = m.lastgroup in kinds
        out.append(re.sub(r"\S", ";" if kept else " ", text[at:m.start()]))
        out.append(m[0] if kept else re.sub(r"[^\n]", " ", m[0]))
        count += kept
        at = m.end()
    return "".join(out), count


BOTH, COMMENTS = ("comment", "string"), ("comment",)


def files(root):
    """(path, kinds of text to read; None: the whole file)"""
    yield os.path.join(root, "README.md"), None
    yield os.path.join(root, "CONTRIBUTING.md"), None
    for top, endings, kinds in (("docs", (".md",), None), ("examples", (".c",), None), ("include", (".h", ".hpp", ".def"), None),
                                ("src", (".c", ".h", ".cl", ".def"), BOTH), ("tools", (".c", ".h", ".def"), BOTH),
                                ("tests", (".c", ".h", ".cc", ".py"), COMMENTS)):
        for folder, dirs, names in os.walk(os.path.join(root, top)):
            dirs[:] = sorted(dirs)
            for name in sorted(names):
                if name.endswith(endings):
                    yield os.path.join(folder, name), kinds


def found_in(text, pattern):
    """(line, phrase) of each match."""
    plain = GAP.sub(" ", text.lower())
    if not pattern.search(plain):
        return
    # Once more with a mark where a line ends; the mark is inside a gap.
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
    errors, nfiles, ntexts = [], 0, 0
    pattern, better = pattern_of([p for p, _ in rows]), dict(rows)
    for path, kinds in files(root):
        text, count = texts(read(path), kinds, PYTHON if path.endswith(".py") else TOKEN) if kinds else (read(path), 0)
        nfiles, ntexts = nfiles + 1, ntexts + count
        for line, phrase in found_in(text, pattern):
            errors.append(f"{os.path.relpath(path, root)}:{line}: \"{phrase}\"; better: {better.get(phrase, 'name it')}")
    return errors, nfiles, ntexts


def main():
    root = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "..", ".."))
    rows = phrases(os.path.join(HERE, "phrases.txt"))
    errors, nfiles, ntexts = check(root, rows)
    for count, least, what in ((len(rows), LEAST_PHRASES, "phrases"), (nfiles, LEAST_FILES, "files"),
                               (ntexts, LEAST_TEXTS, "comments and strings")):
        if count < least:
            errors.append(f"found {count} {what} only, expected at least {least}")
    for e in errors:
        print(e, file=sys.stderr)
    print(f"{len(rows)} phrases, {nfiles} files, {ntexts} comments and strings, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
