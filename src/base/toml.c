/* toml.c: scans TOML by recursive descent over keys, tables and values; see toml.h. It compares the
 * path of each key with the wanted one and notes where the value is, or where a new one could be
 * added: after the table's header, inside an inline table, or before a dotted key of the table.
 */
#include "toml.h"
#include "memory.h"

#include <stdio.h>
#include <string.h>

enum { PATH = 256, DEPTH = 64 };
static const char SEPARATOR = '\x1f'; /* between the parts of a path; no key holds it unescaped */

typedef struct span {
    size_t from, to; /* to = 0: absent */
} span;

typedef struct scanner {
    const char *s;
    size_t n, at;
    int line, depth;
    char path[PATH];
    size_t length; /* of the path so far */
    const char *table, *key;
    size_t header;     /* just after the line of [table]; 0: none */
    span value;        /* of table.key */
    int value_line;    /* where it is */
    span inline_table; /* table = { … } with its braces */
    bool inline_empty;
    size_t dotted; /* the line of the first table.something at the top; valid when has_dotted */
    bool has_dotted;
    fxi_toml_error clash; /* why the key cannot be added; line 0: it can */
    fxi_toml_error *error;
} scanner;

static bool fail(scanner *c, const char *text)
{
    if (c->error->line == 0) {
        c->error->line = c->line;
        snprintf(c->error->text, sizeof c->error->text, "%s", text);
    }
    return false;
}

/* ---- characters ------------------------------------------------------------------------------ */

static char peek(const scanner *c)
{
    return c->at < c->n ? c->s[c->at] : 0;
}

static bool starts(const scanner *c, const char *text)
{
    const size_t n = strlen(text);
    return c->n - c->at >= n && memcmp(c->s + c->at, text, n) == 0;
}

static void skip_blanks(scanner *c)
{
    while (peek(c) == ' ' || peek(c) == '\t')
        c->at++;
}

static void skip_comment(scanner *c)
{
    if (peek(c) == '#')
        while (c->at < c->n && c->s[c->at] != '\n')
            c->at++;
}

/* Skips the end of a line; false if there is none. */
static bool skip_newline(scanner *c)
{
    if (starts(c, "\r\n"))
        c->at++;
    if (peek(c) != '\n')
        return false;
    c->at++;
    c->line++;
    return true;
}

static void skip_lines(scanner *c)
{
    do {
        skip_blanks(c);
        skip_comment(c);
    } while (skip_newline(c));
}

static bool end_of_line(scanner *c)
{
    skip_blanks(c);
    skip_comment(c);
    return c->at >= c->n || skip_newline(c) || fail(c, "expected the end of the line");
}

/* ---- strings --------------------------------------------------------------------------------- */

static bool put(scanner *c, char *out, size_t capacity, size_t *length, char ch)
{
    if (!out)
        return true;
    if (*length + 1 >= capacity)
        return fail(c, "a key or value is longer than cflux reads");
    out[(*length)++] = ch;
    out[*length] = 0;
    return true;
}

static bool put_code_point(scanner *c, char *out, size_t capacity, size_t *length, unsigned long p)
{
    if (p < 0x80)
        return put(c, out, capacity, length, (char)p);
    const int more = p < 0x800 ? 1 : p < 0x10000 ? 2 : 3;
    static const unsigned first[] = {0, 0xC0, 0xE0, 0xF0};
    bool ok = put(c, out, capacity, length, (char)(first[more] | p >> (6 * more)));
    for (int i = more - 1; i >= 0 && ok; i--)
        ok = put(c, out, capacity, length, (char)(0x80 | ((p >> (6 * i)) & 0x3F)));
    return ok;
}

static bool unicode_escape(scanner *c, int digits, char *out, size_t capacity, size_t *length)
{
    unsigned long p = 0;
    for (int i = 0; i < digits; i++, c->at++) {
        const char ch = peek(c);
        const char *hex = "0123456789abcdef", *d = ch ? strchr(hex, ch | 0x20) : NULL;
        if (!d)
            return fail(c, "a \\u escape needs hexadecimal digits");
        p = p << 4 | (unsigned long)(d - hex);
    }
    if (p > 0x10FFFF || (p >= 0xD800 && p < 0xE000))
        return fail(c, "a \\u escape is not a character");
    return put_code_point(c, out, capacity, length, p);
}

static bool escape(scanner *c, bool lines, char *out, size_t capacity, size_t *length)
{
    static const char from[] = "btnfre\"\\", to[] = "\b\t\n\f\r\x1b\"\\";
    const char ch = peek(c);
    const char *f = ch ? strchr(from, ch) : NULL;
    if (f && ch != 'e') {
        c->at++;
        return put(c, out, capacity, length, to[f - from]);
    }
    if (ch == 'u' || ch == 'U') {
        c->at++;
        return unicode_escape(c, ch == 'u' ? 4 : 8, out, capacity, length);
    }
    skip_blanks(c); /* a backslash at the end of a line swallows the white space after it */
    if (lines && skip_newline(c)) {
        while (peek(c) == ' ' || peek(c) == '\t' || peek(c) == '\n' || peek(c) == '\r')
            if (!skip_newline(c))
                c->at++;
        return true;
    }
    return fail(c, "an unknown escape");
}

/* Scans a quoted string; out may be NULL. `lines`: strings with three quotes are allowed. */
static bool string(scanner *c, bool lines, char *out, size_t capacity)
{
    const char quote = peek(c);
    const char triple[] = {quote, quote, quote, 0};
    const bool multi = lines && starts(c, triple), basic = quote == '"';
    size_t length = 0;
    if (out)
        *out = 0;
    c->at += multi ? 3 : 1;
    if (multi)
        skip_newline(c);
    while (c->at < c->n) {
        const char ch = c->s[c->at];
        if (multi ? starts(c, triple) : ch == quote) {
            c->at += multi ? 3 : 1;
            for (int i = 0; multi && i < 2 && peek(c) == quote; i++, c->at++) /* """a""""" */
                if (!put(c, out, capacity, &length, quote))
                    return false;
            return true;
        }
        if (ch == '\n' && !multi)
            break;
        c->line += ch == '\n';
        c->at++;
        if (ch == '\\' && basic ? !escape(c, multi, out, capacity, &length)
                                : !put(c, out, capacity, &length, ch))
            return false;
    }
    return fail(c, "a string is not closed");
}

/* ---- keys ------------------------------------------------------------------------------------ */

static bool bare(char ch)
{
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') ||
           ch == '_' || ch == '-';
}

static bool key_part(scanner *c)
{
    if (c->length > 0 && !put(c, c->path, PATH, &c->length, SEPARATOR))
        return false;
    if (peek(c) == '"' || peek(c) == '\'') {
        if (!string(c, false, c->path + c->length, PATH - c->length))
            return false;
        c->length += strlen(c->path + c->length);
        return true;
    }
    const size_t before = c->at;
    while (bare(peek(c)))
        if (!put(c, c->path, PATH, &c->length, c->s[c->at++]))
            return false;
    return c->at > before || fail(c, "expected a key");
}

/* Scans a key such as a.b."c" and adds it to the path. */
static bool key(scanner *c)
{
    for (;;) {
        skip_blanks(c);
        if (!key_part(c))
            return false;
        skip_blanks(c);
        if (peek(c) != '.')
            return true;
        c->at++;
    }
}

static bool path_is(const scanner *c, const char *table, const char *name)
{
    const size_t a = strlen(table), b = name ? strlen(name) + 1 : 0;
    return c->length == a + b && memcmp(c->path, table, a) == 0 &&
           (!name || (c->path[a] == SEPARATOR && memcmp(c->path + a + 1, name, b - 1) == 0));
}

static bool path_below(const scanner *c, const char *table)
{
    const size_t a = strlen(table);
    return c->length > a && memcmp(c->path, table, a) == 0 && c->path[a] == SEPARATOR;
}

/* Notes that the key is a table, or that the table is something else. */
static void note_clash(scanner *c, const char *why)
{
    if (c->clash.line)
        return;
    c->clash.line = c->line;
    snprintf(c->clash.text, sizeof c->clash.text, "%s", why);
}

/* Is the path, or its beginning, table.key? */
static bool path_through_key(const scanner *c)
{
    const size_t a = strlen(c->table) + 1, b = strlen(c->key);
    return path_below(c, c->table) && c->length >= a + b && memcmp(c->path + a, c->key, b) == 0 &&
           (c->length == a + b || c->path[a + b] == SEPARATOR);
}

/* ---- values ---------------------------------------------------------------------------------- */

static bool value(scanner *c);

static bool array(scanner *c)
{
    const size_t length = c->length;
    c->at++;
    if (!put(c, c->path, PATH, &c->length, SEPARATOR)) /* so no key inside matches */
        return false;
    for (;;) {
        skip_lines(c);
        if (peek(c) == ']')
            break;
        if (!value(c))
            return false;
        skip_lines(c);
        if (peek(c) == ']')
            break;
        if (peek(c) != ',')
            return fail(c, "expected , or ] in an array");
        c->at++;
    }
    c->at++;
    c->path[c->length = length] = 0;
    return true;
}

static bool pair(scanner *c);

static bool inline_table(scanner *c)
{
    const size_t from = c->at, length = c->length;
    const bool wanted = path_is(c, c->table, NULL);
    bool empty = true;
    c->at++;
    skip_blanks(c);
    while (peek(c) != '}') {
        empty = false;
        if (!pair(c))
            return false;
        c->path[c->length = length] = 0;
        skip_blanks(c);
        if (peek(c) == '}')
            break;
        if (peek(c) != ',')
            return fail(c, "expected , or } in an inline table");
        c->at++;
        skip_blanks(c);
        if (peek(c) == '}')
            return fail(c, "expected a key after ,");
    }
    c->at++;
    if (wanted) {
        c->inline_table = (span){from, c->at};
        c->inline_empty = empty;
    }
    return true;
}

/* Numbers, dates, true and false. */
static bool word(scanner *c)
{
    const size_t from = c->at;
    while (bare(peek(c)) || peek(c) == '+' || peek(c) == '.' || peek(c) == ':' ||
           (peek(c) == ' ' && c->at == from + 10 && c->s[from + 4] == '-' && c->at + 1 < c->n &&
            c->s[c->at + 1] >= '0' && c->s[c->at + 1] <= '9')) /* 1979-05-27 07:32:00 */
        c->at++;
    const size_t n = c->at - from;
    const char *w = c->s + from;
    const size_t sign = n > 0 && (*w == '+' || *w == '-');
    const bool number = n > sign && w[sign] >= '0' && w[sign] <= '9';
    const bool named =
        (n == 4 && memcmp(w, "true", 4) == 0) || (n == 5 && memcmp(w, "false", 5) == 0) ||
        (n == sign + 3 && (memcmp(w + sign, "inf", 3) == 0 || memcmp(w + sign, "nan", 3) == 0));
    return number || named || fail(c, n ? "not a TOML value" : "expected a value");
}

static bool value(scanner *c)
{
    skip_blanks(c);
    if (++c->depth > DEPTH)
        return fail(c, "the value is nested deeper than cflux reads");
    const char ch = peek(c);
    const bool ok = ch == '"' || ch == '\'' ? string(c, true, NULL, 0)
                    : ch == '['             ? array(c)
                    : ch == '{'             ? inline_table(c)
                                            : word(c);
    c->depth--;
    return ok;
}

/* Scans key = value; the key is below the current path. */
static bool pair(scanner *c)
{
    if (!key(c))
        return false;
    if (peek(c) != '=')
        return fail(c, "expected = after a key");
    c->at++;
    skip_blanks(c);
    const bool wanted = path_is(c, c->table, c->key);
    const size_t from = c->at;
    const int line = c->line;
    if (wanted && c->value.to)
        return fail(c, "the key is defined twice");
    if (!wanted && path_through_key(c))
        note_clash(c, "the key is a table");
    if (path_is(c, c->table, NULL) && peek(c) != '{')
        note_clash(c, "the table is a value");
    if (!value(c))
        return false;
    if (wanted) {
        c->value = (span){from, c->at};
        c->value_line = line;
    }
    return true;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Scans [table] or [[table]], which becomes the current path. */
static bool header(scanner *c)
{
    const bool list = starts(c, "[[");
    c->at += list ? 2 : 1;
    c->length = 0;
    c->path[0] = 0;
    if (!key(c))
        return false;
    if (!starts(c, list ? "]]" : "]"))
        return fail(c, "expected ] after the name of a table");
    c->at += list ? 2 : 1;
    const bool wanted = !list && path_is(c, c->table, NULL);
    if (wanted && c->header)
        return fail(c, "the table is defined twice");
    if (path_through_key(c))
        note_clash(c, "the key is a table");
    if (list && path_is(c, c->table, NULL))
        note_clash(c, "the table is an array of tables");
    if (!end_of_line(c))
        return false;
    if (wanted)
        c->header = c->at;
    if (list) /* so none of its keys match */
        return put(c, c->path, PATH, &c->length, SEPARATOR);
    return true;
}

static bool scan(scanner *c)
{
    size_t top = 0;                                         /* length of the current table's path */
    const size_t first = starts(c, "\xEF\xBB\xBF") ? 3 : 0; /* a byte order mark stays first */
    c->at = first;
    for (skip_lines(c); c->at < c->n; skip_lines(c)) {
        if (peek(c) == '[') {
            if (!header(c))
                return false;
            top = c->length;
            continue;
        }
        size_t line = c->at;
        while (line > first && c->s[line - 1] != '\n')
            line--;
        if (!pair(c))
            return false;
        if (top == 0 && path_below(c, c->table) && !c->has_dotted) {
            c->has_dotted = true;
            c->dotted = line;
        }
        if (!end_of_line(c))
            return false;
        c->path[c->length = top] = 0;
    }
    return true;
}

static bool scan_for(scanner *c, const char *text, size_t n, const char *table, const char *name,
                     fxi_toml_error *error)
{
    *error = (fxi_toml_error){0};
    *c = (scanner){.s = text, .n = n, .line = 1, .table = table, .key = name, .error = error};
    return scan(c);
}

/* Copies the value that `scan_for` has found: a string, or with `words` a word too. */
static bool copy_value(scanner *c, bool words, char *out, size_t capacity)
{
    const size_t n = c->value.to - c->value.from;
    c->at = c->value.from;
    c->line = c->value_line;
    const char first = peek(c);
    const bool quoted = first == '"' || first == '\'';
    if (!quoted && !words)
        return fail(c, "the value is not a string");
    if (!quoted && (first == '[' || first == '{' || memchr(c->s + c->at, ':', n)))
        return fail(c, "the value is not a string, a number, true or false");
    if (quoted)
        return string(c, true, out, capacity);
    if (n >= capacity)
        return fail(c, "a key or value is longer than cflux reads");
    memcpy(out, c->s + c->at, n);
    out[n] = 0;
    return true;
}

static bool read_value(scanner *c, bool words, char *out, size_t capacity, bool *found)
{
    *found = c->value.to && copy_value(c, words, out, capacity);
    c->error->of_value = c->value.to && !*found;
    return !c->error->of_value;
}

bool fxi_toml_string(const char *text, size_t n, const char *table, const char *name, char *out,
                     size_t capacity, bool *found, fxi_toml_error *error)
{
    scanner c;
    *found = false;
    return scan_for(&c, text, n, table, name, error) && read_value(&c, false, out, capacity, found);
}

bool fxi_toml_text(const char *text, size_t n, const char *table, const char *name, char *out,
                   size_t capacity, bool *found, fxi_toml_error *error)
{
    scanner c;
    *found = false;
    return scan_for(&c, text, n, table, name, error) && read_value(&c, true, out, capacity, found);
}

/* ---- changes --------------------------------------------------------------------------------- */

/* Returns the text with [from, to) replaced by `insert`. */
static char *replaced(const char *text, size_t n, size_t from, size_t to, const char *insert,
                      size_t *out_n)
{
    const size_t m = strlen(insert);
    char *s = fxi_malloc(n - (to - from) + m + 1);
    if (!s)
        return NULL;
    memcpy(s, text, from);
    memcpy(s + from, insert, m);
    memcpy(s + from + m, text + to, n - to);
    *out_n = n - (to - from) + m;
    s[*out_n] = 0;
    return s;
}

char *fxi_toml_set_raw(const char *text, size_t n, const char *table, const char *name,
                       const char *new_value, size_t *out_n, fxi_toml_error *error)
{
    scanner c;
    char line[3 * PATH];
    if (!scan_for(&c, text, n, table, name, error))
        return NULL;
    const bool open = n > 0 && text[n - 1] != '\n'; /* the last line does not end */
    if (c.value.to)
        return replaced(text, n, c.value.from, c.value.to, new_value, out_n);
    if (c.clash.line) {
        *error = c.clash;
        return NULL;
    }
    if (c.header) {
        snprintf(line, sizeof line, "%s%s = %s\n", c.header == n && open ? "\n" : "", name,
                 new_value);
        return replaced(text, n, c.header, c.header, line, out_n);
    }
    if (c.inline_table.to) {
        snprintf(line, sizeof line, "%s%s = %s}", c.inline_empty ? "" : ", ", name, new_value);
        return replaced(text, n, c.inline_table.to - 1, c.inline_table.to, line, out_n);
    }
    if (c.has_dotted) {
        snprintf(line, sizeof line, "%s.%s = %s\n", table, name, new_value);
        return replaced(text, n, c.dotted, c.dotted, line, out_n);
    }
    snprintf(line, sizeof line, "%s%s[%s]\n%s = %s\n", open ? "\n" : "", n ? "\n" : "", table, name,
             new_value);
    return replaced(text, n, n, n, line, out_n);
}
