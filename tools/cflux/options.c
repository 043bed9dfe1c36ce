/* options.c: parses options with getopt_long according to a command's table.
 *
 * getopt_long prints nothing itself: failures are reported in one line, with the most similar
 * option.
 */
#include "options.h"
#include "failure.h"
#include "nearest.h"
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OPTIONS_AT_MOST = 128, FIRST_VALUE = 256 };

static int count_rows(const command *c)
{
    int n = 0;
    while (c->options && n < OPTIONS_AT_MOST && c->options[n].name)
        n++;
    return n;
}

static bool out_of_bounds(const option_row *row, double x)
{
    return isnan(x) || (row->least < row->most && (x < row->least || x > row->most));
}

static int bad_number(const option_row *row, const char *text)
{
    const char *what = row->kind == OPTION_INTEGER ? "a whole number" : "a number";
    if (row->least < row->most)
        return fail(EXIT_BAD_INPUT, "--%s takes %s from %g to %g, got \"%s\"", row->name, what,
                    row->least, row->most, text);
    return fail(EXIT_BAD_INPUT, "--%s takes %s, got \"%s\"", row->name, what, text);
}

static int read_integer(const option_row *row, const char *text)
{
    char *end;
    errno = 0;
    const long long x = strtoll(text, &end, 10);
    if (errno || end == text || *end || out_of_bounds(row, (double)x))
        return bad_number(row, text);
    *(int64_t *)row->to = x;
    return -1;
}

static int read_number(const option_row *row, const char *text)
{
    char *end;
    const double x = strtod(text, &end);
    if (end == text || *end || out_of_bounds(row, x))
        return bad_number(row, text);
    *(double *)row->to = x;
    return -1;
}

/* True if the word is one of the choices, which are separated by bars. */
static bool is_choice(const char *choices, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = choices; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL)
        if (length > 0 && strcspn(at, "|") == length && strncmp(at, word, length) == 0)
            return true;
    return false;
}

static int read_choice(const option_row *row, const char *text)
{
    if (!is_choice(row->metavar, text))
        return fail(EXIT_BAD_INPUT, "--%s is \"%s\", expected one of %s", row->name, text,
                    row->metavar);
    *(const char **)row->to = text;
    return -1;
}

static int read_text(const option_row *row, const char *text)
{
    *(const char **)row->to = text;
    return -1;
}

static int read_flag(const option_row *row, const char *text)
{
    (void)text;
    *(bool *)row->to = true;
    return -1;
}

static int read_texts(const option_row *row, const char *text)
{
    text_list *list = row->to;
    if (list->n == TEXTS_AT_MOST)
        return fail(EXIT_BAD_INPUT, "--%s is given more than %d times", row->name, TEXTS_AT_MOST);
    list->items[list->n++] = text;
    return -1;
}

static int (*const readers[])(const option_row *row, const char *text) = {
    [OPTION_FLAG] = read_flag,       [OPTION_TEXT] = read_text,     [OPTION_CHOICE] = read_choice,
    [OPTION_INTEGER] = read_integer, [OPTION_NUMBER] = read_number, [OPTION_TEXTS] = read_texts,
};

static int unknown_option(const command *c, const char *word)
{
    const char *names[OPTIONS_AT_MOST + 1], *longer[2];
    int n = 0, nlonger = 0;
    for (int i = 0; i < count_rows(c); i++)
        if (c->options[i].kind != OPTION_HEADING)
            names[n++] = c->options[i].name;
    names[n++] = "help";
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    const bool is_long = strncmp(name, "--", 2) == 0;
    for (int i = 0; is_long && i < n && nlonger < 2; i++)
        if (strncmp(names[i], name + 2, strlen(name + 2)) == 0)
            longer[nlonger++] = names[i];
    if (nlonger == 2)
        return fail(EXIT_BAD_INPUT, "%s is short for --%s and for --%s: write more of the name",
                    name, longer[0], longer[1]);
    const char *near = is_long ? nearest(name + 2, names, n) : NULL;
    if (near)
        return fail(EXIT_BAD_INPUT, "unknown option %s; did you mean --%s?", name, near);
    return fail(EXIT_BAD_INPUT, "unknown option %s; cflux help %s lists the options", name,
                c->name);
}

/* Reports an option that getopt_long refused with '?' or ':' at argv[at]; `value` is the value of
 * optopt. */
static int refused(const command *c, char **argv, int at, int value, int said)
{
    const int n = count_rows(c);
    for (int i = 0; i < n; i++) {
        const option_row *row = &c->options[i];
        if (value != FIRST_VALUE + i && (value != row->letter || value == 0))
            continue;
        if (said == ':')
            return fail(EXIT_BAD_INPUT, "--%s needs a value: %s", row->name, row->metavar);
        return fail(EXIT_BAD_INPUT, "--%s takes no value", row->name);
    }
    char letter[3] = {'-', (char)value, 0};
    return unknown_option(c, value ? letter : argv[at]);
}

static const option_row *row_of(const command *c, int value)
{
    const int n = count_rows(c);
    for (int i = 0; i < n; i++)
        if (value == FIRST_VALUE + i || value == c->options[i].letter)
            return &c->options[i];
    return NULL;
}

/* Converts the rows to getopt_long's format. */
static void fill_getopt(const command *c, struct option *longs, char *shorts)
{
    if (c->operands_end_options)
        *shorts++ = '+';
    *shorts++ = ':';
    for (int i = 0; i < count_rows(c); i++) {
        const option_row *row = &c->options[i];
        if (row->kind == OPTION_HEADING)
            continue;
        const int argument = row->kind == OPTION_FLAG ? no_argument : required_argument;
        *longs++ = (struct option){row->name, argument, NULL, FIRST_VALUE + i};
        if (row->letter)
            *shorts++ = row->letter;
        if (row->letter && argument)
            *shorts++ = ':';
    }
    *shorts++ = 'h';
    *shorts = 0;
    longs[0] = (struct option){"help", no_argument, NULL, 'h'};
    longs[1] = (struct option){0};
}

static int check_operands(const command *c, int n, char **operands)
{
    if (n < c->least)
        return fail(EXIT_BAD_INPUT, "too few operands; usage: cflux %s %s", c->name, c->operands);
    if (c->most >= 0 && n > c->most)
        return fail(EXIT_BAD_INPUT, "unexpected operand \"%s\"; usage: cflux %s%s%s",
                    operands[c->most], c->name, *c->operands ? " " : "", c->operands);
    return -1;
}

int options_read(const command *c, int argc, char **argv, int *n, char ***operands)
{
    struct option longs[OPTIONS_AT_MOST + 2];
    char shorts[2 * OPTIONS_AT_MOST + 4];
    const char *given[OPTIONS_AT_MOST] = {NULL}; /* value of each option given so far */
    fill_getopt(c, longs, shorts);
    opterr = 0;
    optind = 0; /* restarts getopt_long, as glibc documents */
    for (;;) {
        const int at = optind ? optind : 1;
        const int value = getopt_long(argc, argv, shorts, longs, NULL);
        if (value == -1)
            break;
        if (value == '?' || value == ':')
            return refused(c, argv, optopt ? at : optind - 1, optopt, value);
        if (value == 'h') {
            options_help(c, stdout);
            return EXIT_FINE;
        }
        const option_row *row = row_of(c, value);
        const char **before = &given[row - c->options];
        if (*before && row->kind != OPTION_TEXTS)
            return fail(EXIT_BAD_INPUT, "--%s is given twice: \"%s\" and \"%s\"", row->name,
                        *before, optarg);
        *before = optarg;
        const int status = readers[row->kind](row, optarg);
        if (status >= 0)
            return status;
    }
    *n = argc - optind;
    *operands = argv + optind;
    return check_operands(c, *n, *operands);
}

/* ---- help, manual and completion ------------------------------------------------------------- */
enum { WIDTH = 80, HELP_COLUMN = 28 };

/* Prints text in lines of at most WIDTH characters; `column` is the start of the first line, the
 * others are indented. Line ends in the text are kept. */
static void wrap(FILE *to, const char *text, int column, int indent)
{
    while (*text) {
        const int length = (int)strcspn(text, " \n");
        if (column > indent && column + 1 + length > WIDTH) {
            fprintf(to, "\n%*s", indent, "");
            column = indent;
        }
        column += fprintf(to, "%s%.*s", column > indent ? " " : "", length, text);
        text += length;
        if (*text == '\n') {
            fprintf(to, "\n%*s", text[1] ? indent : 0, "");
            column = indent;
        }
        text += *text != 0;
    }
    fputc('\n', to);
}

static void help_row(const option_row *row, FILE *to)
{
    if (row->kind == OPTION_HEADING) {
        fprintf(to, "\n%s:\n", row->name);
        return;
    }
    int column = row->letter ? fprintf(to, "  -%c, --%s", row->letter, row->name)
                             : fprintf(to, "      --%s", row->name);
    if (row->metavar)
        column += fprintf(to, " %s", row->metavar);
    if (column + 2 > HELP_COLUMN)
        fprintf(to, "\n%*s", HELP_COLUMN, "");
    else
        fprintf(to, "%*s", HELP_COLUMN - column, "");
    wrap(to, row->help, HELP_COLUMN, HELP_COLUMN);
}

static const option_row help_option = {"help", 'h', OPTION_FLAG, NULL, NULL, "Print this help",
                                       0,      0};

void options_help(const command *c, FILE *to)
{
    const int n = count_rows(c);
    fprintf(to, "Usage: cflux %s%s%s%s\n\n", c->name, n ? " [OPTION]…" : "",
            *c->operands ? " " : "", c->operands);
    fprintf(to, "%s.\n\nExamples:\n", c->summary);
    for (const char *line = c->examples; *line; line += strcspn(line, "\n") + 1)
        fprintf(to, "  %.*s\n", (int)strcspn(line, "\n"), line);
    if (c->about) {
        fputc('\n', to);
        wrap(to, c->about, 0, 0);
    }
    if (n == 0 || c->options[0].kind != OPTION_HEADING)
        fputs("\nOptions:\n", to);
    for (int i = 0; i < n; i++)
        help_row(&c->options[i], to);
    help_row(&help_option, to);
}

/* Prints text for roff. Backslashes, hyphens and apostrophes keep their shape, no line begins with
 * a request, and `paragraph` is the request before each line but the first and those that begin
 * with a blank. */
static void roff_lines(FILE *to, const char *text, const char *paragraph)
{
    for (bool begin = true; *text; begin = *text == '\n', text++) {
        if (begin && *text == '.')
            fputs("\\&", to);
        if (*text == '\\')
            fputs("\\e", to);
        else if (*text == '-')
            fputs("\\-", to);
        else if (*text == '\'')
            fputs("\\(aq", to);
        else if (*text == '\n' && text[1] && text[1] != ' ')
            fprintf(to, "\n%s\n", paragraph);
        else
            fputc(*text, to);
    }
}

static void roff(FILE *to, const char *text)
{
    roff_lines(to, text, ".PP");
}

static void manual_row(const option_row *row, FILE *to)
{
    if (row->kind == OPTION_HEADING) {
        fprintf(to, ".PP\n%s:\n", row->name);
        return;
    }
    fputs(".TP\n", to);
    if (row->letter)
        fprintf(to, "\\fB\\-%c\\fR, ", row->letter);
    fputs("\\fB\\-\\-", to);
    roff(to, row->name);
    fputs("\\fR", to);
    if (row->metavar) {
        fputs(" \\fI", to);
        roff(to, row->metavar);
        fputs("\\fR", to);
    }
    fputc('\n', to);
    roff(to, row->help);
    fputs(".\n", to);
}

static void manual_command(const command *c, FILE *to)
{
    const int n = count_rows(c);
    fprintf(to, ".SS cflux %s%s%s", c->name, n ? " [\\fIOPTION\\fR]…" : "",
            *c->operands ? " " : "");
    roff(to, c->operands);
    fputc('\n', to);
    roff(to, c->summary);
    fputs(".\n", to);
    if (c->about) {
        fputs(".PP\n", to);
        roff(to, c->about);
        fputc('\n', to);
    }
    for (int i = 0; i < n; i++)
        manual_row(&c->options[i], to);
}

void options_manual(const command *const *commands, int n, FILE *to)
{
    fprintf(to,
            ".TH CFLUX 1 \"\" \"cflux %s\" \"User Commands\"\n"
            ".SH NAME\ncflux \\- neural networks from the command line\n"
            ".SH SYNOPSIS\n\\fBcflux\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR]… [\\fIOPERAND\\fR]…\n"
            ".PP\n\\fBcflux help\\fR [\\fICOMMAND\\fR]\n"
            ".SH DESCRIPTION\nTrains, evaluates, inspects and converts neural networks in Flux's "
            "notation and formats.\n"
            "Results go to standard output, progress and errors to standard error.\n"
            "Every command takes \\fB\\-\\-help\\fR.\n"
            ".SH COMMANDS\n",
            fx_version());
    for (int i = 0; i < n; i++)
        manual_command(commands[i], to);
    fputs(
        ".SH \"EXIT STATUS\"\n"
        ".TP\n0\nSuccess.\n"
        ".TP\n1\nFailure while running: a failed write, a device error, a loss that is NaN.\n"
        ".TP\n2\nBad input: options, notation, columns, shapes, or missing or invalid files. "
        "Nothing was written.\n"
        ".TP\n130, 143\nStopped by SIGINT (130) or SIGTERM (143).\n"
        ".SH ENVIRONMENT\n"
        ".TP\nCFLUX_PROJECT\nThe folder of LocalPreferences.toml (default: the current folder).\n"
        ".TP\nFX_PLUGIN_PATH\nFolders in which to search for plugins first, separated by colons.\n"
        ".TP\nFX_NUM_THREADS\nNumber of CPU threads (default: all cores that the process may "
        "use).\n"
        ".SH EXAMPLES\n",
        to);
    for (int i = 0; i < n; i++) {
        fprintf(to, ".PP\n%s:\n.IP\n", commands[i]->summary);
        roff_lines(to, commands[i]->examples, ".IP");
    }
}

static bool completes_files(const option_row *row)
{
    return row->metavar && (strstr(row->metavar, "FILE") || strstr(row->metavar, "FOLDER"));
}

static void completion_command(const command *c, FILE *to)
{
    const int n = count_rows(c);
    fprintf(to, "    %s)\n        case $previous in\n", c->name);
    for (int i = 0; i < n; i++) {
        const option_row *row = &c->options[i];
        if (row->kind == OPTION_FLAG || row->kind == OPTION_HEADING)
            continue;
        fprintf(to, "        --%s", row->name);
        if (row->letter)
            fprintf(to, " | -%c", row->letter);
        fputs(")\n            ", to);
        if (row->kind == OPTION_CHOICE) {
            fputs("words='", to);
            for (const char *s = row->metavar; *s; s++)
                fputc(*s == '|' ? ' ' : *s, to);
            fputs("'\n", to);
        } else {
            fputs(completes_files(row) ? "files=1\n" : ":\n", to);
        }
        fputs("            ;;\n", to);
    }
    fputs("        *)\n            files=1\n            options='", to);
    for (int i = 0; i < n; i++)
        if (c->options[i].kind != OPTION_HEADING)
            fprintf(to, "--%s ", c->options[i].name);
    fputs("--help'\n            ;;\n        esac\n        ;;\n", to);
}

void options_completion(const command *const *commands, int n, FILE *to)
{
    fputs("# Completion of cflux for bash, made from the program's own tables.\n"
          "_cflux() {\n"
          "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}\n"
          "    local words= options= files=\n"
          "    if [ \"$COMP_CWORD\" = 1 ]; then\n"
          "        words='help",
          to);
    for (int i = 0; i < n; i++)
        fprintf(to, " %s", commands[i]->name);
    fputs("'\n        options='--help --version'\n    else\n    case ${COMP_WORDS[1]} in\n"
          "    help)\n        words='",
          to);
    for (int i = 0; i < n; i++)
        fprintf(to, "%s%s", i ? " " : "", commands[i]->name);
    fputs("'\n        ;;\n", to);
    for (int i = 0; i < n; i++)
        completion_command(commands[i], to);
    fputs("    esac\n    fi\n"
          "    case $current in\n"
          "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$current\")) ;;\n"
          "    *)\n"
          "        COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
          "        [ -z \"$files\" ] || COMPREPLY+=($(compgen -f -- \"$current\"))\n"
          "        ;;\n"
          "    esac\n"
          "}\n"
          "complete -o filenames -F _cflux cflux\n",
          to);
}
