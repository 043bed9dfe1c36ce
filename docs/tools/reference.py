"""The pages of the reference: one for each public header, and an index of all names."""
import html
import os
import re

import headers as parser

NAMES_IN_TITLE, ARGUMENTS_SHOWN = 3, 4


def slug(name):
    return os.path.splitext(name)[0]


class Pages:
    """Where each public name is documented: the page, and the anchor there."""

    def __init__(self, root):
        self.root = root
        self.headers = parser.parse_headers(root)
        self.page_of = {}
        for header in self.headers:
            for item, _ in parser.public_items(header):
                defines = "{" in item.text and item.kind == "type" and header.name != "backend.h"
                for name in ([item.name] if item.name else []) + [c for c, _ in item.constants]:
                    if name not in self.page_of or defines:
                        self.page_of[name] = header.name
        for name, *_ in parser.operations(root):
            self.page_of[name] = "backend.h"

    def target(self, name, suffix):
        """The reference's file and anchor of a name: "nn.html#fx_dense"; None when there is none."""
        return f"{slug(self.page_of[name])}{suffix}#{name}" if name in self.page_of else None

    # ---- pieces of HTML -----------------------------------------------------------------------

    def linked(self, text, own=()):
        """Escaped text in which all public names but `own` are links."""
        def link(m):
            where = self.target(m.group(0), ".html") if m.group(0) not in own else None
            return f'<a href="{where}">{m.group(0)}</a>' if where else m.group(0)
        return re.sub(r"\b(?:fx|FX)_\w+\b", link, html.escape(text, quote=False))

    def prose(self, comment):
        """The paragraphs of a comment; indented lines are unchanged."""
        out, lines = [], comment.split("\n") + [""]
        paragraph, block = [], []

        def flush():
            if paragraph:
                text = self.linked(" ".join(paragraph))
                out.append("<p>" + re.sub(r"`([^`]+)`", r"<code>\1</code>", text) + "</p>")
            if block:
                out.append("<pre><code>" + self.linked("\n".join(block)) + "</code></pre>")
            paragraph.clear(), block.clear()
        for line in lines:
            if not line.strip():
                flush()
            elif line.startswith("  "):
                if paragraph:
                    flush()
                block.append(line[2:])
            else:
                if block:
                    flush()
                paragraph.append(line.strip())
        return "\n".join(out)

    # ---- declarations -------------------------------------------------------------------------

    def shown(self, item, header):
        """The text of a declaration, without the words that only compilers need."""
        text = item.text
        if item.kind == "macro":
            return self.shown_macro(item, header)
        text = re.sub(r"\bFX_API ", "", text)
        text = re.sub(r"\n[^\n]*\bsize_t fxi_size;[^\n]*", "", text)
        text = re.sub(r"\s*FXI_PRINTF\([^)]*\)", "", text)
        text = re.sub(r"^#\s*define OP.*\n#\s*include.*$", "    /* FX_OP_ADD, …: one for each operation, see below */",
                      text, flags=re.M)
        if text.startswith("static inline"):
            text = text[len("static inline "):].partition("{")[0].strip().rstrip(";") + ";"
        return text

    def shown_macro(self, item, header):
        parameters = re.match(r"#\s*define\s+\w+(\([^)]*\))?", item.text).group(1) or ""
        if not item.inner:
            one_line = "\\" not in item.text and "fxi_" not in item.text.lower()
            return item.text if one_line else f"{item.name}{parameters}"
        head = re.match(r"(.*?)\bfxi_\w+\s*\(", self.shown(item.inner, header), re.S).group(1)
        kept = re.search(r"__typeof__\((\w+)\)", item.text)
        cast = re.search(r"\(\((\w+) \*\)fxi_", item.text)
        if kept:
            head = f"typeof({kept.group(1)}) "
        elif cast:
            head = f"{cast.group(1)} *"
        options = re.search(r"const (fx_\w+_args) \*\w+\)", item.inner.text)
        if not options or "..." not in parameters:
            return f"{head}{item.name}{parameters};"
        struct = options.group(1)
        return f"{head}{item.name}({self.parameters(item, parameters, struct, header)});  /* options: {struct} */"

    def parameters(self, item, parameters, struct, header):
        """The text for the dots of a macro with options: the struct's members from the first."""
        body = item.text
        for name in re.findall(r"\b(?:FXI|fx)_\w+", body)[1:]:
            helper = next((i for g in header.groups() for i in g.items if i.name == name), None)
            body += helper.text if helper else ""
        first = re.search(r"\.(\w+) = __VA_ARGS__", body)
        known = parameters.strip("()").split(",")[:-1]
        members = self.members(struct, header)
        if not first:
            return ", ".join([k.strip() for k in known] + [".option = …"])
        rest = members[members.index(first.group(1)):]
        more = [".option = …"] if len(rest) > ARGUMENTS_SHOWN else []
        return ", ".join([k.strip() for k in known] + rest[:ARGUMENTS_SHOWN] + more)

    @staticmethod
    def members(struct, header):
        named = [i for g in header.groups() for i in g.items if i.name == struct]
        item = next((i for i in named if "{" in i.text), None)
        if not item:  # typedef fx_maxpool_args fx_meanpool_args;
            other = next(m for m in (re.match(rf"typedef (\w+) {struct};", i.text) for i in named) if m)
            return Pages.members(other.group(1), header)
        body = parser.without_comments(item.text[item.text.index("{") + 1:item.text.rindex("}")])
        names = []
        for part in body.split(";"):
            part = part.strip()
            pointer = re.search(r"\(\*(\w+)\)\s*\(", part)
            if pointer:
                names.append(pointer.group(1))
            elif part:
                names += [re.search(r"(\w+)\s*(\[[^\]]*\])?$", p.strip()).group(1) for p in part.split(",")]
        return [n for n in names if not n.startswith("fxi_")]

    # ---- pages --------------------------------------------------------------------------------

    def entries(self, group, header):
        """(names, declaration, comment) of what a group makes public."""
        rows = []
        for item in group.items:
            faces = item.faces if item.kind == "inner" else [] if item.inner else [item]
            for face in faces:
                if not (face.name == "" or parser.PUBLIC.fullmatch(face.name)):
                    continue
                names = [face.name] if face.name else []
                names += [name for name, _ in face.constants]
                comments = [c for c in (item.comment, face.comment if face is not item else "") if c]
                own = self.comment_above(face, header) if face is not item else ""
                rows.append((names, self.shown(face, header), ". ".join(comments), own))
        return rows

    @staticmethod
    def comment_above(item, header):
        return next(g.comment for g in header.groups() if any(i is item for i in g.items))

    def group_page(self, group, header, written):
        rows = self.entries(group, header)
        rows = [r for r in rows if r[0]]
        if not rows:
            return [self.prose(group.above)] if not group.items else []
        titles = [r[0][0] for r in rows]
        title = ", ".join(f"`{t}`" for t in titles[:NAMES_IN_TITLE]) + (" …" if len(titles) > NAMES_IN_TITLE else "")
        lines, here = [], {n for r in rows for n in r[0]}
        for names, declaration, comment, _ in rows:
            anchors = "".join(f'<span id="{n}"></span>' for n in names
                              if self.page_of.get(n) == header.name and n not in written)
            written.update(names)
            for name in here:
                declaration = declaration.replace(f"  /* options: {name} */", "")
            text = self.linked(declaration, own=here)
            if comment:
                text += f'  <span class="comment">/* {self.linked(comment, own=here)} */</span>'
            lines.append(anchors + text)
        comments = dict.fromkeys([group.comment] + [r[3] for r in rows])
        return [f"### {title} {{ #ref-{titles[0]} }}",
                "<pre class=\"declaration\"><code>" + "\n".join(lines) + "</code></pre>"] + \
               [self.prose(c) for c in comments if c]

    def header_page(self, header):
        heading, _, rest = header.opening.partition("\n")
        title, _, what = heading.partition(": ")
        out = [f"# {title}", self.prose(what[0].upper() + what[1:] + "\n" + rest)]
        written = set()
        for section, groups in header.sections:
            pieces = [piece for group in groups for piece in self.group_page(group, header, written)]
            out += [f"## {section[:1].upper() + section[1:]}"] * bool(section and pieces) + pieces
        if header.name == "backend.h":
            out += self.operations_page()
        return "\n\n".join(o for o in out if o) + "\n"

    def operations_page(self):
        rows = ["".join(f"<td>{html.escape(c)}</td>" for c in (name, inputs.replace("-1", "any"), cls.lower(), comment))
                for name, _, inputs, cls, comment in parser.operations(self.root)]
        ids = [name for name, *_ in parser.operations(self.root)]
        table = "\n".join(f'<tr id="{i}">{row}</tr>' for i, row in zip(ids, rows))
        return ["## The operations", "<p>Every primitive, from <code>cflux/op.def</code>.</p>",
                f"<table><thead><tr><th>operation</th><th>inputs</th><th>class</th><th></th></tr></thead>\n"
                f"<tbody>\n{table}\n</tbody></table>"]

    def index_page(self):
        out = ["# Reference", "Every public function, type and macro, from the comments of the headers. "
               "`#include <cflux.h>` is all of them but `cflux/backend.h`. Options follow the "
               "arguments, in the order of their struct or by name, `.option = value`. C++ programs have the same names as overloads and templates.", ""]
        for header in self.headers:
            first = " ".join(header.opening.partition(": ")[2].split("\n\n")[0].split())
            sentence = re.split(r"(?<=\.)\s", first)[0]
            out.append(f"- [{header.name}]({slug(header.name)}.md): {sentence[0].upper() + sentence[1:]}")
        letters = {}
        for name in sorted(self.page_of, key=lambda n: (n[3:].lower(), n)):
            letters.setdefault(name[3].upper(), []).append(name)
        out += ["", "## All names", ""]
        for letter, names in sorted(letters.items()):
            links = " ".join(f'<a href="{self.target(n, ".html")}">{n}</a>' for n in names)
            out.append(f'### {letter}\n\n<p class="names">{links}</p>\n')
        return "\n".join(out) + "\n"

    def write(self, folder):
        os.makedirs(folder, exist_ok=True)
        pages = {"index.md": self.index_page()}
        pages.update({slug(h.name) + ".md": self.header_page(h) for h in self.headers})
        for name, text in pages.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                f.write(text)
        return [slug(h.name) for h in self.headers]
