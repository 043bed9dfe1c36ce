/* interrupt.c: see interrupt.h. */
#include "interrupt.h"
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

static volatile sig_atomic_t caught;
static struct sigaction before[2];
static const int signals[2] = {SIGINT, SIGTERM};

/* Both may have come before this is run for one of them. */
static void note(int number)
{
    const bool second = caught != 0;
    caught = number;
    for (int i = 0; i < 2; i++) /* either ends the program from now on */
        signal(signals[i], SIG_DFL);
    if (second)
        raise(number);
}

void interrupt_begin(void)
{
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < 2; i++) {
        sigaction(signals[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN) /* nohup and background jobs stay as they are */
            sigaction(signals[i], &action, NULL);
    }
}

int interrupt_caught(void)
{
    return caught;
}

void interrupt_end(void)
{
    for (int i = 0; i < 2; i++)
        sigaction(signals[i], &before[i], NULL);
}
