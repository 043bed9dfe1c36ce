/* comma_locale.h: a locale in which C's printf writes 1,5 for 1.5. tests/CMakeLists.txt makes one
 * if localedef and the sources of locales are installed (Debian: the package locales).
 */
#ifndef CFLUX_COMMA_LOCALE_H
#define CFLUX_COMMA_LOCALE_H

#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sets it for the whole program; setlocale(LC_ALL, "C") ends it. False and a line of output: there
 * is none. */
static inline bool set_comma_locale(void)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8",
                                        "nl_NL.UTF-8", "de_DE",      "fr_FR"};
    char text[8];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (setlocale(LC_ALL, names[i])) {
            snprintf(text, sizeof text, "%.1f", 1.5);
            if (strcmp(text, "1,5") == 0)
                return true;
        }
    setlocale(LC_ALL, "C");
    if (getenv("CFLUX_COMMA_LOCALE")) {
        printf("the locale that CMake made in %s cannot be set\n", getenv("LOCPATH"));
        exit(1);
    }
    printf("skipped: no locale with a decimal comma is installed\n");
    return false;
}

#endif
