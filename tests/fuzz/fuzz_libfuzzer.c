/* fuzz_libfuzzer.c: the readers under libFuzzer: fuzz_runner TARGET [libFuzzer's options] [FOLDER].
 *
 * New inputs go to the first folder, which is made; the seeds are added to it.
 */
#include "fuzz_target.h"

#include <cflux.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

static const fuzz_target *target;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    enum { MOST = 64 };
    static char *words[MOST + FUZZ_SEED_FOLDERS + 3], length[32];
    int n = 0;
    if (*argc > 1)
        target = fuzz_target_named((*argv)[1]);
    if (!target || *argc > MOST) {
        fprintf(stderr, "usage: fuzz_runner TARGET [options] [folder]; targets:");
        for (int i = 0; i < fuzz_target_count; i++)
            fprintf(stderr, " %s", fuzz_targets[i].name);
        fprintf(stderr, "\n");
        exit(2);
    }
    fx_message_set_hook(NULL, NULL);
    snprintf(length, sizeof length, "-max_len=%zu", fuzz_longest(target));
    words[n++] = (*argv)[0];
    words[n++] = length;
    bool folder = false;
    for (int i = 2; i < *argc; i++) {
        const char *word = words[n++] = (*argv)[i];
        struct stat info;
        if (word[0] == '-')
            continue;
        if (stat(word, &info) != 0 && mkdir(word, 0777) != 0) {
            perror(word);
            exit(2);
        }
        folder = folder || stat(word, &info) != 0 || S_ISDIR(info.st_mode);
    }
    for (int i = 0; folder && fuzz_seed_folder(target, i); i++)
        words[n++] = strdup(fuzz_seed_folder(target, i));
    *argc = n;
    *argv = words;
    return 0;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
    fuzz_one(target, data, n);
    return 0;
}
