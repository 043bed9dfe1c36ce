/* python_bson.c: the scripts of tests/support that need Python's bson. */
#include "python_bson.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "temp_file.h"

void python_bson(const char *script, const char *a, const char *b, const char *c, char *line,
                 size_t capacity)
{
    char command[3000];
    snprintf(command, sizeof command,
             "for p in python3 /usr/bin/python3; do $p -B tests/support/%s '%s' '%s' '%s' "
             "2>/dev/null && exit; done; exit 9",
             script, a, b ? b : "", c ? c : "");
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
    if (access(path, F_OK) != 0)
        python_bson("make_bson.py", "all", folder, NULL, line, sizeof line);
    return path;
}
