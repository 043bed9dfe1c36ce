/* separator.c: finds the character that separates the columns of a table: see separator.h.
 *
 * A character fits if it divides the first records into the same number of fields, at least two.
 * Blanks are also part of texts, so they fit only if every record after the first, which may be a
 * header, contains a number. A decimal comma makes two readings of the same line possible; numbers
 * would silently become texts, so this is an error.
 */
#include "separator.h"
#include "c_text.h"

#include <string.h>

enum { RECORDS = 20 };

/* The unread bytes at the beginning of the table. */
typedef struct sample {
    const char *start, *end;
    bool whole;   /* the file ends at `end` */
    char decimal; /* the decimal mark, '.' or ',' */
    int64_t line;
} sample;

/* A record of the sample, divided by one separator. */
typedef struct record {
    const char *start, *end; /* without the line break */
    int64_t line, fields, numbers, decimal_commas;
} record;

/* True if [start, end) is a number with a decimal comma, such as 1,5. */
static bool has_decimal_comma(const char *start, const char *end)
{
    start += start < end && (*start == '-' || *start == '+');
    const size_t whole = strspn(start, "0123456789");
    const char *comma = start + whole;
    if (whole == 0 || comma >= end || *comma != ',')
        return false;
    const size_t decimals = strspn(comma + 1, "0123456789");
    return decimals > 0 && comma + 1 + decimals == end;
}

static void count_field(const sample *s, record *r, const char *start, const char *stop)
{
    const fxi_field f = fxi_field_unquote((char *)start, (char *)stop);
    float value;
    bool too_large;
    r->fields++;
    r->numbers += fxi_field_number(f, s->decimal, &value, &too_large);
    r->decimal_commas += s->decimal == '.' && has_decimal_comma(f.start, f.stop);
}

/* Reads the record at `at`, and returns the beginning of the next one. */
static const char *read_record(const sample *s, const char *at, char separator, record *r)
{
    fxi_position now = FXI_FIELD_BEFORE;
    const char *field = at;
    *r = (record){.start = at, .line = r->line};
    for (; at < s->end && (*at != '\n' || now == FXI_FIELD_INSIDE); at++) {
        const bool ends = now != FXI_FIELD_INSIDE && fxi_is_separator(*at, separator);
        /* Several blanks are one separator, and leading blanks are none. */
        if (ends && (separator != ' ' || now != FXI_FIELD_BEFORE))
            count_field(s, r, field, at);
        field = ends ? at + 1 : field;
        r->line += *at == '\n';
        now = fxi_position_after(now, *at, separator);
    }
    r->end = at;
    if (separator != ' ' || now != FXI_FIELD_BEFORE)
        count_field(s, r, field, at);
    r->line += at < s->end;
    return at + (at < s->end);
}

static bool is_empty(const record *r)
{
    const fxi_field all = fxi_field_trim((char *)r->start, (char *)r->end);
    return all.start == all.stop;
}

/* All fields are numbers, and at least one has a decimal comma. */
static bool are_decimal_commas(const record *r)
{
    return r->decimal_commas > 0 && r->decimal_commas + r->numbers == r->fields;
}

/* Divides the first records at the separator. Returns their number of fields if the separator fits,
 * else 0. *out: the first of these records with decimal commas, else the last one. */
static int64_t fields_of(const sample *s, char separator, record *out)
{
    record r = {.line = s->line};
    int64_t fields = 0;
    int n = 0;
    for (const char *at = s->start; at < s->end && n < RECORDS;) {
        const char *next = read_record(s, at, separator, &r);
        const bool complete = next < s->end || s->whole || next[-1] == '\n' || n == 0;
        at = next;
        if (is_empty(&r) || !complete)
            continue;
        const bool words = separator == ' ' && r.numbers + r.decimal_commas == 0;
        if (n++ == 0)
            fields = r.fields;
        else if (r.fields != fields || words)
            return 0;
        if (!are_decimal_commas(out))
            *out = r;
    }
    const bool one_text = n == 1 && separator == ' ' && out->numbers + out->decimal_commas == 0;
    return fields > 1 && !one_text ? fields : 0;
}

/* `second` NULL: `first` is the comma, which can also be a decimal comma. */
static fx_status ambiguous(const fxi_lines *lines, const record *r, const char *first,
                           const char *second)
{
    const fxi_field all = fxi_field_trim((char *)r->start, (char *)r->end);
    const long long line = r->line - (*r->end == '\n');
    enum { SHOWN = 40 };
    const int n = (int)(all.stop - all.start < SHOWN ? all.stop - all.start : SHOWN);
    if (!second)
        return fx_fail(FX_STATUS_FORMAT, lines->file.op,
                       "%s: line %lld: the commas in \"%.*s\" can be decimal commas or separators: "
                       "call fx_read_table with .decimal = ',' or .separator = %s",
                       lines->file.path, line, n, all.start, first);
    return fx_fail(FX_STATUS_FORMAT, lines->file.op,
                   "%s: line %lld: two characters can separate the columns of \"%.*s\": call "
                   "fx_read_table with .separator = %s or %s",
                   lines->file.path, line, n, all.start, first, second);
}

typedef struct candidate {
    char separator;
    const char *shown;
    int64_t fields; /* 0: does not fit */
    record example; /* for messages, see fields_of */
} candidate;
enum { COMMA, SEMICOLON, BAR, TAB, BLANK, CANDIDATES };

static fx_status choose(const fxi_lines *lines, const candidate c[CANDIDATES], char otherwise,
                        char *out)
{
    const candidate *found = c[COMMA].fields ? &c[COMMA] : NULL;
    for (const candidate *x = c + SEMICOLON; x <= c + BLANK; x++) {
        if (!x->fields)
            continue;
        const bool blank = x == c + BLANK;
        if (are_decimal_commas(&x->example))
            return ambiguous(lines, &x->example, c[COMMA].shown, NULL);
        if (found && found != c + COMMA && !blank)
            return ambiguous(lines, &x->example, found->shown, x->shown);
        /* Several tabs between two columns: empty fields, or one wide gap. */
        if (found == c + TAB && blank && x->fields < found->fields)
            return ambiguous(lines, &x->example, found->shown, x->shown);
        found = found ? found : x;
    }
    *out = found ? found->separator : otherwise;
    return FX_OK;
}

fx_status fxi_find_separator_of(fxi_lines *lines, char decimal, char *out)
{
    candidate c[CANDIDATES] = {{.separator = ',', .shown = "','"},
                               {.separator = ';', .shown = "';'"},
                               {.separator = '|', .shown = "'|'"},
                               {.separator = '\t', .shown = "'\\t'"},
                               {.separator = ' ', .shown = "' '"}};
    sample s = {.line = lines->latest + 1, .decimal = decimal};
    size_t n;
    const fx_status status = fxi_lines_peek(lines, &s.start, &n, &s.whole);
    if (status != FX_OK)
        return status;
    s.end = s.start + n;
    for (int i = decimal == ',' ? SEMICOLON : COMMA; i < CANDIDATES; i++)
        c[i].fields = fields_of(&s, c[i].separator, &c[i].example);
    return choose(lines, c, decimal == ',' ? ';' : ',', out);
}
