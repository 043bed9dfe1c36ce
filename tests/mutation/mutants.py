"""Makes mutants of a C file: copies with one small mistake each, of the kinds that programmers make.

`mutants(path, text)` lists every mutant of a file. Comments, strings, preprocessor lines, declarations and
initialisers of tables are left alone: a mutant changes an expression or a statement in the body of a
function, and never the number of lines, so that __LINE__ stays what it was.

The code is read as a list of tokens, not parsed. clang-format makes that enough: a binary operator has a
space on both sides, a unary one and the star of a pointer do not.
"""
import dataclasses
import re

TOKEN = re.compile(r"""
    (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
  | (?P<word>[A-Za-z_]\w*)
  | (?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)
  | (?P<operator><<=|>>=|\.\.\.|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|[-+*/%&|^~!<>=?:;,.(){}\[\]\#])
""", re.VERBOSE | re.DOTALL)

FLIPPED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*", "<<": ">>", ">>": "<<", "+=": "-=", "-=": "+=",
              "&": "|", "|": "&", "|=": "&="}
ASSIGNMENTS = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
KEYWORDS = {"if", "else", "for", "while", "do", "switch", "case", "default", "return", "break", "continue", "goto",
            "sizeof", "static", "const", "struct", "enum", "union", "typedef", "extern", "_Static_assert", "__asm__"}
OPENING, CLOSING = "([{", ")]}"


@dataclasses.dataclass(frozen=True)
class Token:
    kind: str
    text: str
    start: int
    end: int


@dataclasses.dataclass(frozen=True)
class Mutant:
    path: str
    line: int        # of the first changed character, from 1
    kind: str        # comparison, constant, condition, operand, arithmetic, statement
    before: str      # the changed lines, without their indentation
    after: str
    start: int       # of the original text that `new` replaces
    end: int
    new: str

    def applied(self, text):
        return text[:self.start] + self.new + text[self.end:]

    def key(self):
        return (self.path, " ".join(self.before.split()), " ".join(self.after.split()))


def tokens(text):
    """The tokens of a file without comments and preprocessor lines (with their continuations)."""
    blanked = re.sub(r"(?m)^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", lambda m: re.sub(r"[^\n]", " ", m.group()), text)
    return [Token(m.lastgroup, m.group(), m.start(), m.end())
            for m in TOKEN.finditer(blanked) if m.lastgroup != "comment"]


def partners(toks):
    """For every bracket the position of the one that belongs to it."""
    found, stack = {}, []
    for i, t in enumerate(toks):
        if t.text in OPENING and t.kind == "operator":
            stack.append(i)
        elif t.text in CLOSING and t.kind == "operator" and stack:
            found[i] = stack.pop()
            found[found[i]] = i
    return found


def bodies(toks, partner):
    """The positions of tokens inside functions: what follows `) {` outside of any bracket."""
    inside, i = [], 0
    while i < len(toks):
        if toks[i].text == "{":
            end = partner.get(i, len(toks))
            if i and toks[i - 1].text == ")":
                inside.append((i, end))
            i = end
        i += 1
    return inside


def in_initialiser(toks, partner, first, last):
    """The positions of `= { … }` in a body: tables, whose mistakes are typing errors rather than logic."""
    hidden = set()
    for i in range(first, last):
        if toks[i].text == "{" and toks[i - 1].text in ("=", ")") and statement_of(toks, partner, i, first) in ("static", "const"):
            hidden.update(range(i, partner.get(i, i)))
    return hidden


def statement_of(toks, partner, i, first):
    """The first word of the statement that position i is in."""
    while i > first and toks[i - 1].text not in (";", "{", "}"):
        i = partner.get(i - 1, i - 1) if toks[i - 1].text in CLOSING else i - 1
    return toks[i].text


class File:
    def __init__(self, path, text):
        self.path, self.text = path, text
        self.toks = tokens(text)
        self.partner = partners(self.toks)
        self.found = []

    def change(self, kind, start, end, replacement):
        """Records the mutant that has `replacement` in place of text[start:end]."""
        lines = self.text[start:end].count("\n")
        new = replacement + "\n" * (lines - replacement.count("\n"))
        text = self.text[:start] + new + self.text[end:]
        first, last = self.text.rfind("\n", 0, start) + 1, self.text.find("\n", end)
        tail = last + len(new) - (end - start)
        self.found.append(Mutant(self.path, self.text.count("\n", 0, start) + 1, kind,
                                 self.text[first:last].strip(), text[first:tail].strip(), start, end, new))

    def source(self, i, j):
        """The text of tokens i to j, j included."""
        return self.text[self.toks[i].start:self.toks[j].end]

    def is_binary(self, i):
        t = self.toks[i]
        return self.text[t.start - 1:t.start].isspace() and self.text[t.end:t.end + 1].isspace()

    def operators(self, i):
        t = self.toks[i]
        if t.kind != "operator" or not self.is_binary(i):
            return
        for kind, table in (("comparison", FLIPPED), ("arithmetic", ARITHMETIC)):
            if t.text in table:
                self.change(kind, t.start, t.end, table[t.text])

    def is_array_size(self, i):
        """The 4 of `int a[4]`: a larger array behaves the same."""
        return (i >= 3 and self.toks[i - 1].text == "[" and self.toks[i - 2].kind == "word" and
                (self.toks[i - 3].kind == "word" or self.toks[i - 3].text == "*" and not self.is_binary(i - 3)) and
                self.toks[i - 3].text not in KEYWORDS - {"const", "static"})

    def constants(self, i):
        t = self.toks[i]
        literal = re.fullmatch(r"(0[xX][0-9a-fA-F]+|\d+)([uUlL]*)", t.text)
        if t.kind != "number" or not literal or self.is_array_size(i):
            return
        value = int(literal.group(1), 16 if literal.group(1)[:2] in ("0x", "0X") else 10)
        self.change("constant", t.start, t.end, f"{value + 1}{literal.group(2)}")
        if value > 0:
            self.change("constant", t.start, t.end, f"{value - 1}{literal.group(2)}")

    def conditions(self, i):
        word = self.toks[i].text
        if word not in ("if", "while") or self.toks[i + 1].text != "(":
            return
        first, last = self.toks[i + 1].end, self.toks[self.partner[i + 1]].start
        condition = self.text[first:last]
        for replacement in ("0", "1", f"!({condition})") if word == "if" else ("0",):
            self.change("condition", first, last, replacement)

    def operand(self, i, step):
        """The other end of the operand of && or || at i: to the right (step 1) or to the left (step −1)."""
        stops = {"&&", "||", "?", ":", ",", ";", "return", "{", "}"} | ASSIGNMENTS
        skip, end = (OPENING, CLOSING) if step > 0 else (CLOSING, OPENING)
        j = i + step
        while self.toks[j].text not in stops and self.toks[j].text not in end:
            j = self.partner[j] if self.toks[j].text in skip else j
            j += step
        return j - step

    def operands(self, i):
        t = self.toks[i]
        if t.text not in ("&&", "||") or t.kind != "operator":
            return
        neutral = "1" if t.text == "&&" else "0"
        for first, last in ((self.operand(i, -1), i - 1), (i + 1, self.operand(i, 1))):
            self.change("operand", self.toks[first].start, self.toks[last].end, neutral)
        self.change("operand", t.start, t.end, "||" if t.text == "&&" else "&&")

    def statements(self, i):
        """A call or an assignment that is a statement of its own."""
        before = self.toks[i - 1].text
        if before not in (";", "{", "}", ")", "else", ":"):
            return
        if before == ":" and statement_of(self.toks, self.partner, i - 1, 0) not in ("case", "default"):
            return
        if before == ")" and self.toks[self.partner[i - 1] - 1].text not in ("if", "for", "while", "switch"):
            return
        if self.toks[i].kind != "word" and self.toks[i].text != "*" or self.toks[i].text in KEYWORDS:
            return
        j = i if self.toks[i].kind == "word" else i + 1
        while self.toks[j + 1].text in ("[", "(", ".", "->") or self.toks[j].text in (".", "->"):
            j = self.partner[j + 1] if self.toks[j + 1].text in "[(" else j + 1
        end = j + 1
        if self.toks[end].text not in ASSIGNMENTS | {";"}:
            return
        while self.toks[end].text != ";":
            end = self.partner.get(end, end) if self.toks[end].text in OPENING else end
            end += 1
            if end >= len(self.toks) or self.toks[end].text in CLOSING: # not a statement: the body of a macro
                return
        if end > i + 1:
            self.change("statement", self.toks[i].start, self.toks[end].end, ";")

    def all(self):
        for first, last in bodies(self.toks, self.partner):
            hidden = in_initialiser(self.toks, self.partner, first, last)
            for i in range(first + 1, last):
                if i not in hidden:
                    for make in (self.operators, self.constants, self.conditions, self.operands, self.statements):
                        make(i)
        return self.found


def mutants(path, text):
    return File(path, text).all()
