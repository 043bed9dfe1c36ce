"""Reads the declarations of the public headers with their comments, for the reference and its check.

A header is read as a C compiler sees it: the branches for C++, and FXI_CXX(…), are left out. What remains is a list of
sections, each a list of groups: a comment that stands alone on its lines, and the unbroken run of
declarations and macros below it. A comment at the end of a line belongs to the declaration before it. The text
after the colon of a section's title belongs to the group directly below.

FXI_OPTION_STRUCT(fx_x_args, FXI_X_ARGS) declares a struct whose members are listed by the macro FXI_X_ARGS
with their types and defaults; here it is the struct that a C compiler sees, with the defaults as comments.

A macro fx_name(…) that calls a function fxi_name is the public form of this function: the reference shows it
where the function is declared, with the comments of both.
"""
import os
import re
from dataclasses import dataclass, field

COMMENT = re.compile(r"/\*.*?\*/", re.S)
PUBLIC = re.compile(r"fx_\w+|FX_\w+")
# Words of the headers' own machinery that stand alone, without a semicolon.
BARE_MACRO = re.compile(r"FXI_\w+(\([^()]*\))?")


@dataclass
class Item:
    """One declaration or macro."""
    kind: str                # function, macro, type, constants, inner
    name: str
    text: str                # as in the header, comments included
    line: int
    comment: str = ""        # at the end of its line
    constants: list = field(default_factory=list)  # of an enum: (name, comment)
    faces: list = field(default_factory=list)  # of an fxi_ function: the macros that call it
    inner: "Item" = None                       # of such a macro: that function


@dataclass
class Group:
    above: str
    items: list = field(default_factory=list)

    @property
    def comment(self):
        """The comment above the group; "" if it is about a function that is not public."""
        first = self.items[0] if self.items else None
        private = first and first.kind == "inner" and first.text.startswith("FX_API") and not first.faces
        return "" if private else self.above


@dataclass
class Header:
    name: str                # "nn.h"
    opening: str
    sections: list = field(default_factory=list)  # (title, [Group])

    def groups(self):
        return [g for _, groups in self.sections for g in groups]


def comment_text(raw):
    """A comment without its frame: lines without the leading star."""
    lines = raw[2:-2].split("\n")
    return "\n".join([lines[0].strip()] + [re.sub(r"^\s*\* ?", "", l).rstrip() for l in lines[1:]]).strip("\n")


def without_comments(text):
    return COMMENT.sub(" ", text)


def c_branches(text):
    """The lines that a C compiler sees, the others empty; defines stay, with their continuations."""
    out, stack = [], []
    lines, i = text.split("\n"), 0
    while i < len(lines):
        end = i
        while lines[end].endswith("\\"):
            end += 1
        m = re.match(r"\s*#\s*(ifdef|ifndef|if|else|elif|endif)\b\s*(.*)", lines[i])
        if m:
            word, condition = m.group(1), m.group(2)
            if word in ("ifdef", "ifndef", "if"):
                stack.append(not (word == "ifdef" and condition.strip() == "__cplusplus"))
            elif word == "endif":
                stack.pop()
            else:
                stack[-1] = not stack[-1]
            out += [""] * (end + 1 - i)
        else:
            kept = all(stack) and not re.match(r"\s*FXI_CXX\(", lines[i])
            out += lines[i:end + 1] if kept else [""] * (end + 1 - i)
        i = end + 1
    return "\n".join(out)


def declaration_end(text, start):
    """Where a declaration ends: after its semicolon, or after the body of an inline function."""
    depth, i, body = 0, start, text.startswith("static inline", start)
    while i < len(text):
        c = text[i]
        if text.startswith("/*", i):
            i = text.index("*/", i) + 1
        elif c in "({":
            depth += 1
        elif c in ")}":
            depth -= 1
            if c == "}" and depth == 0 and body:
                return i + 1
        elif c == ";" and depth == 0:
            return i + 1
        i += 1
    raise ValueError(f"a declaration does not end: {text[start:start + 60]!r}")


def constants_of(text):
    """The constants of an enum with the comments at their lines."""
    body = text[text.index("{") + 1:text.rindex("}")]
    found = []
    for m in re.finditer(r"\b(FX_\w+)\b(?!##)([^,/]*),?[ \t]*(/\*.*?\*/)?", body, re.S):
        if "/*" not in body[:m.start()] or body[:m.start()].count("/*") == body[:m.start()].count("*/"):
            found.append((m.group(1), comment_text(m.group(3)) if m.group(3) else ""))
    return found


def declaration(text, line):
    code = " ".join(without_comments(text).split())
    plain = re.sub(r"__attribute__\(\(.*?\)\)|FXI_PRINTF\([^)]*\)", "", code)
    if re.match(r"(typedef )?enum\b", plain):
        m = re.search(r"\}\s*(\w+)\s*;$", plain)
        name = m.group(1) if m else ""
        return Item("type" if name else "constants", name, text, line, constants=constants_of(text))
    m = re.match(r"typedef .*\(\*(\w+)\)\(.*\);$", plain)
    if m:
        return Item("type", m.group(1), text, line)
    if plain.startswith("typedef"):
        return Item("type", re.search(r"(\w+)\s*;$", plain).group(1), text, line)
    m = re.match(r"struct (\w+) ?[{;]", plain)
    if m:
        return Item("type", m.group(1), text, line)
    m = re.search(r"\(?\b(fxi?_\w+)\)?\s*\(", plain)
    if m:
        return Item("function" if m.group(1).startswith("fx_") else "inner", m.group(1), text, line)
    return Item("inner", plain, text, line)


def macro(text, line):
    m = re.match(r"#\s*define\s+(\w+)", text)
    name = m.group(1)
    found = re.search(r"/\*.*?\*/\s*$", text, re.S)
    code = text[:found.start()] if found else text
    comment = comment_text(found.group(0).replace("\\\n", "\n")) if found else ""
    kind = "macro" if PUBLIC.fullmatch(name) else "inner"
    return Item(kind, name, code.rstrip(), line, comment=" ".join(comment.split()))


def tokens(text):
    """(what, value) of a header's text: blank, comment, trailing, item."""
    i, n = 0, len(text)
    line_start = True                    # nothing but white space so far on this line
    while i < n:
        line = text.count("\n", 0, i) + 1
        if text[i] == "\n":
            end = re.compile(r"\s*").match(text, i).end()
            if text.count("\n", i, end) > 1:
                yield "blank", ""
            line_start, i = True, max(end, i + 1)
        elif text[i].isspace():
            i += 1
        elif text.startswith("/*", i):
            end = text.index("*/", i) + 2
            yield ("comment" if line_start else "trailing"), comment_text(text[i:end])
            i = end
        elif text[i] == "#":
            end = re.compile(r"(?:[^\n]*\\\n)*[^\n]*").match(text, i).end()
            if re.match(r"#\s*define", text[i:]):
                yield "item", macro(text[i:end], line)
            i, line_start = end, False
        else:
            bare = BARE_MACRO.match(text, i)
            if bare:
                i = bare.end()
                continue
            end = declaration_end(text, i)
            yield "item", declaration(text[i:end], line)
            i, line_start = end, False


# How the defaults of options are written for readers; None: there is none to name.
DEFAULTS = {"FXI_NULL": None, "FXI_DIMS_NONE": None, "FXI_DIMS_ONE": "FX_DIMS(1)", "FXI_DIMS_ZERO": "FX_DIMS(0)",
            "FXI_AXES_ALL": "FX_ALL", "FXI_AXES_OF(0)": "FX_AXES(0)"}


def member(kind, name, value, comment):
    default = DEFAULTS.get(value, value)
    comment = " ".join(comment.replace("\\\n", " ").split())
    words = "; ".join(w for w in (f"default: {default}" if default else "", comment) if w)
    space = "" if kind.endswith("*") else " "
    return f"    {kind}{space}{name};" + (f" /* {words} */" if words else "")


def option_struct(text, name, members):
    """The struct that FXI_OPTION_STRUCT declares, as C source."""
    found = re.search(rf"#define {members}\(F\)((?:[^\n]*\\\n)*[^\n]*)", text)
    rows = re.findall(r"\bF\(([^,]+), (\w+), ([^()]*(?:\([^()]*\))?)\)[ \t]*(?:/\*(.*?)\*/)?", found.group(1), re.S)
    if not rows:
        raise ValueError(f"{members} lists no members")
    lines = [member(*row) for row in rows]
    widest = max(line.find(" /*") for line in lines)
    lines = [line.replace(" /*", " /*".rjust(3 + widest - line.find(" /*")), 1) if " /*" in line else line
             for line in lines]
    return "\n".join([f"typedef struct {name} {{", "    size_t fxi_size;"] + lines + [f"}} {name};"])


def parse_header(path):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    text = re.sub(r"^FXI_OPTION_STRUCT\((\w+), (\w+)\);$",
                  lambda m: option_struct(text, m.group(1), m.group(2)), text, flags=re.M)
    opening = COMMENT.match(text)
    header = Header(os.path.basename(path), comment_text(opening.group(0)))
    sections, group, last = [("", [])], None, None
    body = "\n" * opening.group(0).count("\n") + c_branches(text[opening.end():])
    for what, value in tokens(body):
        if what == "blank":
            group = last = None
        elif what == "comment" and value.startswith("----"):
            title, _, formula = value.strip("- ").partition(": ")
            sections.append((title, [Group(formula)]))
            group, last = (sections[-1][1][0] if formula else None), None
        elif what == "comment" and not value.startswith("clang-format"):
            group, last = Group(value), None
            sections[-1][1].append(group)
        elif what == "trailing" and last:
            last.comment = " ".join(value.split())
        elif what == "item":
            if group is None:
                group = Group("")
                sections[-1][1].append(group)
            group.items.append(value)
            last = value
    header.sections = [s for s in ((t, [g for g in gs if g.comment or g.items]) for t, gs in sections) if s[1]]
    join_faces(header)
    return header


def join_faces(header):
    """Ties each macro to the fxi_ function that it calls, where the header declares that."""
    inner = {i.name: i for g in header.groups() for i in g.items if i.kind == "inner"}
    for group in header.groups():
        for item in group.items:
            called = re.search(r"\b(fxi_\w+)\s*[(,]", item.text) if item.kind == "macro" else None
            function = inner.get(called.group(1)) if called else None
            if function and item.name.lower().startswith("fx_") and "(" in function.text:
                if not function.text.startswith("#"):
                    function.faces.append(item)
                    item.inner = function


def parse_headers(root):
    folder = os.path.join(root, "include", "cflux")
    return [parse_header(os.path.join(folder, n)) for n in sorted(os.listdir(folder)) if n.endswith(".h")]


def operations(root):
    """The rows of op.def: (constant, name, inputs, class, comment)."""
    with open(os.path.join(root, "include", "cflux", "op.def"), encoding="utf-8") as f:
        text = f.read()
    rows = re.findall(r'^(?:OWN_)?(?:OP\((\w+), "(\w+)", (-?\d+), (\w+)|(ELEMENTWISE)\((\w+), (\w+), (\d+)),.*?\)'
                      r'[ \t]*(?:/\* *(.*?) *\*/)?$', text, re.M)
    return [("FX_OP_" + (r[0] or r[5]), r[1] or r[6], r[2] or r[7], r[3] or r[4], r[8]) for r in rows]


@dataclass
class Symbol:
    name: str
    header: str
    line: int
    documented: bool


def public_items(header):
    """(item, group comment, documented) of what a header makes public."""
    comment_of = {id(i): g.comment for g in header.groups() for i in g.items}
    for group in header.groups():
        for item in group.items:
            if item.kind == "inner" or not (item.name == "" or PUBLIC.fullmatch(item.name)):
                continue
            function = item.inner
            words = [group.comment, item.comment]
            if function:
                words += [comment_of[id(function)], function.comment]
            yield item, any(words)


def symbols(root):
    """Every public name with where it is declared, and whether a comment says what it is."""
    found = {}

    def add(name, header, line, documented):
        known = found.get(name)
        if known is None:
            found[name] = Symbol(name, header, line, documented)
        else:
            known.documented = known.documented or documented
    for header in parse_headers(root):
        for item, documented in public_items(header):
            if item.name and not (item.name.startswith("CFLUX_") or item.name == "FX_API"):
                add(item.name, header.name, item.line, documented)
            for name, comment in item.constants:
                add(name, header.name, item.line, documented or bool(comment))
    for name, _, _, _, comment in operations(root):
        add(name, "backend.h", 0, bool(comment))
    return found
