/* test_kills.c: processes that are killed while they save: the files that they leave always load,
 * and contain one of the saved states. ctest: full timeout=600
 *
 * test_kills [N]: N kills (default: 1000). */
#include <cflux.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "temp_file.h"

enum { SIZE = 3000, LONGEST_WAIT = 8000000 };

/* Saves the checkpoint of training step number `step`, in which every element is `step`. */
static fx_status save(const char *path, int64_t step)
{
    FX_SCOPE;
    return fx_checkpoint_save(path, fx_tuple(fx_full((double)step, SIZE)), .step = step,
                              .keep = 1 + (int)(step % 3));
}

/* Returns the state that the files contain; −1: none, or a mixture of states. */
static int64_t load(const char *path)
{
    FX_SCOPE;
    fx_array *x = fx_zeros(SIZE);
    fx_checkpoint_args c = {.fxi_size = sizeof c, .model = fx_tuple(x)};
    if (fx_checkpoint_load(path, &c) != FX_OK) {
        fx_error_print(stderr);
        return -1;
    }
    for (int64_t i = 0; i < SIZE; i++)
        if (fx_at(x, i) != (double)c.step)
            return -1;
    return c.step;
}

/* Calls `saved` after each save. */
static void save_for_ever(const char *path, int64_t step, int saved)
{
    while (save(path, ++step) == FX_OK && write(saved, "", 1) == 1)
        continue;
    fx_error_print(stderr);
    _exit(1);
}

/* Kills at a random moment after the child was started, or after its first save. True if the child
 * had not failed before it was killed. */
static bool kill_one(const char *path, int64_t from, bool after_a_save)
{
    int saved[2];
    char byte;
    if (pipe(saved) != 0)
        return false;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0)
        save_for_ever(path, from, saved[1]);
    close(saved[1]);
    if (after_a_save && read(saved[0], &byte, 1) != 1)
        perror("read");
    nanosleep(&(struct timespec){0, rand() % LONGEST_WAIT}, NULL);
    kill(child, SIGKILL);
    int how;
    close(saved[0]);
    return waitpid(child, &how, 0) == child && WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL;
}

int main(int argc, char **argv)
{
    const int kills = argc > 1 ? atoi(argv[1]) : 1000;
    static const char *const names[] = {"run.tmp0", "run.1", "run.2", "run"};
    const char *path = NULL;
    for (int i = 0; i < 4; i++) {
        path = temp_text(names[i], "");
        unlink(path);
    }
    fx_set_num_threads(1);
    srand(7);
    int64_t step = 0;
    int failed = save(path, step) != FX_OK, moved = 0;
    for (int i = 0; i < kills && !failed; i++) {
        failed = !kill_one(path, step, i % 2);
        const int64_t now = load(path);
        failed |= now < step;
        moved += now > step;
        if (failed)
            fprintf(stderr, "after kill %d: state %lld, state %lld was there before\n", i,
                    (long long)now, (long long)step);
        step = now;
    }
    printf("%d kills, %d of them after a save, the last state is %lld\n", kills, moved,
           (long long)step);
    failed |= moved < kills / 2;
    return failed;
}
