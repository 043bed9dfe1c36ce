/* python_run.c: finds Python interpreters and runs scripts: see python_run.h. */
#include "python_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "temp_file.h"

const char *python_that(const char *arguments)
{
    static const char *const all[] = {"python3", "/usr/bin/python3"};
    char command[300];
    for (int i = 0; i < 2; i++) {
        snprintf(command, sizeof command, "%s -B %s 2>/dev/null", all[i], arguments);
        if (system(command) == 0)
            return all[i];
    }
    return NULL;
}

void need_python(const char *python)
{
#ifdef _WIN32
    if (!python)
        skip();
#endif
    assert_non_null(python);
}

void python_bson(const char *script, const char *a, const char *b, const char *c, char *line,
                 size_t capacity)
{
    static const char *python;
    char command[3000];
    python = python ? python : python_that("-c 'import bson'");
    need_python(python);
    snprintf(command, sizeof command, "%s -B tests/support/%s '%s' '%s' '%s'", python, script, a,
             b ? b : "", c ? c : "");
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    if (!fgets(line, (int)capacity, pipe))
        line[0] = 0;
    if (pclose(pipe) != 0)
        fail_msg("%s %s %s %s: %s", script, a, b ? b : "", c ? c : "", line);
}

const char *made_bson(const char *name)
{
    static char path[1000];
    char folder[900], line[200];
    const char *mark = temp_text("made_bson.mark", "");
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(mark, '/') - mark), mark);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (access(path, R_OK) != 0)
        python_bson("make_bson.py", "all", folder, NULL, line, sizeof line);
    if (access(path, R_OK) != 0)
        fail_msg("make_bson.py does not make %s", name);
    return path;
}
