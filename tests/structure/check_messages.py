#!/usr/bin/env python3
"""Refuses error messages without content, in calls of the functions that report an error in src/ and tools/:

  * a message about a limit ("is negative", "must be at least 1") states the value: it has a conversion such as %d;
  * any other message has a conversion or at least three words.

Also, tests/unit/test_operation_names.c calls every function of the headers below that takes arrays and returns some, to
see that its errors name it.

The functions add the operation, or the file and the offset, to the message. A call is checked as a whole, because a
message may choose one of several texts. A call without text of its own passes on another message.
Usage: check_messages.py [root]
"""
import os
import re
import sys

FUNCTIONS = "fx_fail|fxi_bytes_fail|fxi_cpu_fail|fxi_gpu_fail|fxi_layer_fail|fxi_reader_fail|fail|refuse"
CALL = re.compile(rf"(?<![\w.>])(?:{FUNCTIONS})\(")
TOKEN = re.compile(r"/\*.*?\*/|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"|[()]", re.S)
COMMENT = re.compile(r"/\*.*?\*/", re.S)
LIMIT = re.compile(r"\b(is|are|be) negative\b|\btoo (large|long|small|short|many|few|deep|big)\b|\bout of range\b"
                   r"|\b(must|should) (not )?be (at least|at most|from|between|positive|less|more|above|below)\b"
                   r"|\bneeds at (least|most)\b|\bbetween \d")
LEAST_CALLS, LEAST_WORDS = 900, 3
NAMES_TEST = os.path.join("tests", "unit", "test_operation_names.c")
NAMED = ("attention", "losses", "metrics", "ops", "resample", "signal")  # headers
NOT_CALLED = {"mean_rest": "fx_mean calls it", "custom": "the program names its operation", "attend": "it calls a layer"}


def call_text(text, at):
    """The string literals of the call whose arguments begin at `at`; neighbours are one literal."""
    depth, literals, end = 1, [], None
    for m in TOKEN.finditer(text, at):
        token = m[0]
        depth += (token == "(") - (token == ")")
        if depth == 0:
            break
        if token[0] == '"' and end is not None and not COMMENT.sub("", text[end:m.start()]).strip():
            literals[-1] += token[1:-1]
        elif token[0] == '"':
            literals.append(token[1:-1])
        end = m.end() if token[0] == '"' else end
    return literals


def fault(literals):
    """Returns the mistake in the message of a call, or None. A literal without blanks names the operation."""
    words = " ".join(s for s in literals if " " in s.strip()).split()
    if "%" in " ".join(literals).replace("%%", "") or not words:
        return None
    if LIMIT.search(" ".join(words)):
        return "states a limit without the value that was given"
    if len(words) < LEAST_WORDS:
        return f"has fewer than {LEAST_WORDS} words"
    return None


def check(root):
    errors, calls = [], 0
    for top in ("src", "tools"):
        for folder, _, names in sorted(os.walk(os.path.join(root, top))):
            for name in sorted(n for n in names if n.endswith((".c", ".h"))):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as f:
                    text = f.read()
                for m in CALL.finditer(text):
                    literals = call_text(text, m.end())
                    calls += bool(literals)
                    wrong = fault(literals)
                    if wrong:
                        line = text.count("\n", 0, m.start()) + 1
                        errors.append(f"{os.path.relpath(path, root)}:{line}: the message {' '.join(literals)!r} {wrong}")
    return errors, calls


def check_names(root):
    """The functions that the test of names does not call."""
    operations = set()
    for header in NAMED:
        with open(os.path.join(root, "include", "cflux", header + ".h"), encoding="utf-8") as f:
            text = COMMENT.sub(" ", f.read())
        operations |= {name for name, arguments in re.findall(r"FX_API (?:fx_array|void) \*fxi?_(\w+)\(([^;]*?)\);", text)
                       if re.search(r"fx_array \*|fxi_arg |fx_\w+_args \*", arguments)}
    public = {re.sub("_true$", "", name) for name in operations - set(NOT_CALLED)}  # fx_any: fxi_any_true
    with open(os.path.join(root, NAMES_TEST), encoding="utf-8") as f:
        called = set(re.findall(r"\bfx_(\w+)\(", f.read()))
    return [f"{NAMES_TEST} does not call fx_{name}" for name in sorted(public - called)]


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    errors, calls = check(root)
    errors += check_names(root)
    print(f"{calls} calls with a text")
    if calls < LEAST_CALLS:
        errors.append(f"only {calls} calls were found")
    for e in errors:
        print(e)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
