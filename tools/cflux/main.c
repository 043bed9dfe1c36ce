/* main.c: the entry point of the cflux command: finds the subcommand in a table and runs it. */
#include "failure.h"
#include "nearest.h"
#include "options.h"
#include "system.h"
#include <string.h>

#define COMMAND(name) extern const command command_##name;
#include "commands.def"
#undef COMMAND

static const command *const commands[] = {
#define COMMAND(name) &command_##name,
#include "commands.def"
#undef COMMAND
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static const command *find_command(const char *name)
{
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

static int unknown_command(const char *name)
{
    const char *names[COMMANDS + 1];
    for (int i = 0; i < COMMANDS; i++)
        names[i] = commands[i]->name;
    names[COMMANDS] = "help";
    const char *near = nearest(name, names, COMMANDS + 1);
    if (near)
        return fail(EXIT_BAD_INPUT, "unknown command \"%s\"; did you mean %s?", name, near);
    return fail(EXIT_BAD_INPUT, "unknown command \"%s\"; cflux help lists the commands", name);
}

static int list_commands(FILE *to)
{
    fputs("Usage: cflux COMMAND [OPTION]… [OPERAND]…\n\nNeural networks from the command line.\n\n"
          "Commands:\n",
          to);
    for (int i = 0; i < COMMANDS; i++)
        fprintf(to, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    fputs("  help       Explain a command\n\n"
          "\"cflux help COMMAND\" or \"cflux COMMAND --help\" explains a command.\n"
          "\"cflux --version\" prints the version.\n",
          to);
    return EXIT_FINE;
}

static int help(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)
        return list_commands(stdout);
    if (strcmp(argv[1], "--man") == 0)
        options_manual(commands, COMMANDS, stdout);
    else if (strcmp(argv[1], "--completion") == 0)
        options_completion(commands, COMMANDS, stdout);
    else if (find_command(argv[1]))
        options_help(find_command(argv[1]), stdout);
    else
        return unknown_command(argv[1]);
    return EXIT_FINE;
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        list_commands(stderr);
        return EXIT_BAD_INPUT;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("cflux %s\n", fx_version());
        return EXIT_FINE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return list_commands(stdout);
    if (strcmp(argv[1], "help") == 0)
        return help(argc - 1, argv + 1);
    const command *c = find_command(argv[1]);
    if (!c)
        return unknown_command(argv[1]);
    failure_command(c->name);
    int n;
    char **operands;
    const int status = options_read(c, argc - 1, argv + 1, &n, &operands);
    return status >= 0 ? status : c->run(n, operands);
}

int main(int argc, char **argv)
{
    system_begin(&argc, &argv);
    failure_take_messages();
    return finish_output(run(argc, argv));
}
