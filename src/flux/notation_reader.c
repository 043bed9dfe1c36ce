/* notation_reader.c: reads characters, names and numbers of Julia's notation: see
 * notation_reader.h. */
#include "notation_reader.h"
#include "c_text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_TEXT = 64 };

/* ---- failures -------------------------------------------------------------------------------- */

static bool continues(char c) /* true for a continuation byte of UTF-8 */
{
    return ((unsigned char)c & 0xC0) == 0x80;
}

/* "model, column 14"; includes the line if the text has several. */
static void location_text(const fxi_reader *r, const char *at, char *dst, size_t capacity)
{
    int line = 1, column = 1;
    for (const char *c = r->text; c < at; c++) {
        column = *c == '\n' ? 1 : column + !continues(*c);
        line += *c == '\n';
    }
    if (strchr(r->text, '\n'))
        snprintf(dst, capacity, "%s, line %d, column %d", r->what, line, column);
    else
        snprintf(dst, capacity, "%s, column %d", r->what, column);
}

static bool record(fxi_reader *r, const char *at, fx_status status, const char *message)
{
    char op[64];
    if (r->status != FX_OK)
        return false;
    location_text(r, at, op, sizeof op);
    r->status = fx_fail(status, op, "%s", message);
    return false;
}

bool fxi_reader_fail(fxi_reader *r, const char *at, const char *format, ...)
{
    char text[440];
    va_list ap;
    va_start(ap, format);
    fxi_vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    return record(r, at, FX_STATUS_FORMAT, text);
}

bool fxi_reader_no_memory(fxi_reader *r, const char *at)
{
    return record(r, at, FX_STATUS_MEMORY, "out of memory");
}

bool fxi_reader_passed_on(fxi_reader *r, const char *at)
{
    if (r->record_before) {
        r->status = FX_STATUS_ARGUMENT;
        return false;
    }
    const fx_error e = fx_error_take();
    return record(r, at, e.status == FX_OK ? FX_STATUS_INTERNAL : e.status, e.message);
}

/* ---- characters ------------------------------------------------------------------------------ */

char fxi_reader_peek(fxi_reader *r)
{
    for (;; r->at++) {
        if (*r->at == '#')
            r->at += strcspn(r->at, "\n");
        if (!*r->at || !strchr(" \t\r\n", *r->at))
            return *r->at;
    }
}

bool fxi_reader_take(fxi_reader *r, char c)
{
    if (fxi_reader_peek(r) != c)
        return false;
    r->at++;
    return true;
}

bool fxi_reader_arrow(fxi_reader *r)
{
    if (fxi_reader_peek(r) != '-' || r->at[1] != '>')
        return false;
    r->at += 2;
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Bytes above 0x7F are letters of any script, except ×: it is an operator, and fx_show prints it in
 * sizes.
 */
static bool in_name(const char *c, bool first)
{
    const bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || *c == '_';
    const bool other = (unsigned char)*c >= 0x80 && strncmp(c, "×", 2) != 0;
    return letter || other || (!first && (is_digit(*c) || *c == '!'));
}

static fxi_span scan_name(const char *at)
{
    fxi_span s = {at, at};
    while (in_name(s.to, s.to == s.from))
        s.to++;
    return s;
}

bool fxi_span_is(fxi_span s, const char *word)
{
    const size_t n = (size_t)(s.to - s.from);
    return strlen(word) == n && memcmp(s.from, word, n) == 0;
}

bool fxi_span_one_of(fxi_span s, const char *words)
{
    while (words && *words) {
        const size_t n = strcspn(words, " ");
        if (n == (size_t)(s.to - s.from) && memcmp(s.from, words, n) == 0)
            return true;
        words += n + (words[n] != 0);
    }
    return false;
}

bool fxi_reader_keyword(fxi_reader *r, fxi_span *out)
{
    fxi_reader_peek(r);
    const fxi_span name = scan_name(r->at);
    fxi_reader ahead = *r;
    ahead.at = name.to;
    if (name.from == name.to || fxi_reader_peek(&ahead) != '=' || ahead.at[1] == '=' ||
        ahead.at[1] == '>')
        return false;
    *out = name;
    r->at = ahead.at + 1;
    return true;
}

const char *fxi_reader_got(fxi_reader *r, const char *from, char dst[FXI_EXCERPT_BYTES])
{
    const char c = fxi_reader_peek(r), *to = scan_name(r->at).to;
    if (!c && from >= r->at)
        return "the end of the text";
    while (is_digit(*to) || (*to == '.' && is_digit(to[1])))
        to++;
    to += to == r->at && *to;
    while (continues(*to))
        to++;
    size_t n = 0;
    int width = 0;
    const char *p = from;
    for (; p < to && n < 4 * FXI_EXCERPT && (width < FXI_EXCERPT || continues(*p)); p++) {
        width += !continues(*p);
        dst[n++] = (unsigned char)*p < ' ' ? ' ' : *p;
    }
    snprintf(dst + n, 8, "%s", p < to ? "…" : "");
    return dst;
}

bool fxi_reader_next_item(fxi_reader *r, bool first, char close)
{
    char buf[FXI_EXCERPT_BYTES];
    if (r->status != FX_OK)
        return false;
    if (first)
        fxi_reader_take(r, ';');
    if (fxi_reader_take(r, close))
        return false;
    const bool separated = first || fxi_reader_take(r, ',') || fxi_reader_take(r, ';');
    if (!separated)
        return fxi_reader_fail(r, r->at, "expected , or %c, got %s", close,
                               fxi_reader_got(r, r->at, buf));
    return !fxi_reader_take(r, close);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Allowed module prefixes. Of Flux.relu, NNlib.relu and Flux.Losses.mse only the final part is
 * used. */
static const char *const MODULES =
    "Flux NNlib Optimisers Optimise Losses MLUtils Base Main Statistics";

bool fxi_reader_name(fxi_reader *r, fxi_span *out)
{
    fxi_reader_peek(r);
    *out = scan_name(r->at);
    while (out->to > out->from && *out->to == '.' && fxi_span_one_of(*out, MODULES))
        *out = scan_name(out->to + 1);
    if (out->to == out->from)
        return false;
    r->at = out->to;
    return true;
}

int fxi_span_width(fxi_span s)
{
    const ptrdiff_t n = s.to - s.from;
    return n > FXI_NAME_SHOWN ? FXI_NAME_SHOWN : (int)n;
}

void fxi_add_word(char *list, size_t capacity, const char *word)
{
    static const char cut[] = ", …";
    const size_t n = strlen(list), more = sizeof cut - 1;
    if (n + 2 + strlen(word) + more < capacity)
        snprintf(list + n, capacity - n, "%s%s", n ? ", " : "", word);
    else if (n < more || strcmp(list + n - more, cut) != 0)
        snprintf(list + n, capacity - n, "%s", cut);
}

/* ---- numbers --------------------------------------------------------------------------------- */

static bool scan_number(fxi_reader *r, char text[NUMBER_TEXT], fxi_number *out)
{
    fxi_reader_peek(r);
    const char *c = r->at;
    size_t n = 0;
    bool digits = false, exponent = false;
    *out = (fxi_number){.span = {c, c}, .integer = true};
    for (; n + 1 < NUMBER_TEXT; c++) {
        const bool sign = (*c == '-' || *c == '+') && (n == 0 || text[n - 1] == 'e');
        const bool power = strchr("eEf", *c) && *c && digits && !exponent;
        if (*c == '_' && digits && is_digit(c[1]))
            continue;
        if (!is_digit(*c) && !sign && !power && (*c != '.' || !out->integer || exponent))
            break;
        digits = digits || is_digit(*c);
        exponent = exponent || power;
        out->narrow = out->narrow || (power && *c == 'f');
        out->integer = out->integer && !power && *c != '.';
        text[n++] = power ? 'e' : *c;
    }
    text[n] = 0;
    out->span.to = c;
    return digits;
}

bool fxi_reader_number(fxi_reader *r, fxi_number *out)
{
    char text[NUMBER_TEXT], *end;
    if (!scan_number(r, text, out))
        return false;
    out->value = fxi_strtod(text, &end);
    const double held = out->narrow ? (double)(float)out->value : out->value;
    bool ok = !*end && (held - held) == 0;
    if (out->integer && ok) {
        errno = 0;
        out->whole = strtoll(text, NULL, 10);
        ok = errno == 0;
    }
    if (!ok)
        return fxi_reader_fail(r, out->span.from, "%.*s is not a number, or too large",
                               (int)(out->span.to - out->span.from), out->span.from);
    r->at = out->span.to;
    return true;
}

/* ---- beginning and end ----------------------------------------------------------------------- */

bool fxi_reader_begin(fxi_reader *r, const char *what, const char *text)
{
    *r = (fxi_reader){.what = what, .text = text, .at = text};
    r->record_before = fx_error_status() != FX_OK;
    if (!text)
        r->status = fx_fail(FX_STATUS_ARGUMENT, what, "the text is NULL");
    return text != NULL;
}

bool fxi_reader_end(fxi_reader *r)
{
    char buf[FXI_EXCERPT_BYTES];
    if (r->status != FX_OK || !fxi_reader_peek(r))
        return r->status == FX_OK;
    return fxi_reader_fail(r, r->at, "expected the end of the text, got %s",
                           fxi_reader_got(r, r->at, buf));
}
