/* huge_pages.c: decides which new memory asks for huge pages; see huge_pages.h. */
#include "huge_pages.h"

#include <stdbool.h>

#define MIB ((int64_t)1 << 20)
static const int64_t PIECE = 16 * MIB, FIRST_PAUSE = 64 * MIB, LONGEST_PAUSE = 1024 * MIB;

/* Nanoseconds. A huge page that took less than USED_BEFORE was not new: the C library had used its
 * memory before. 512 small pages take about as long as SLOW. */
static const int64_t USED_BEFORE = 20 * 1000, SLOW = 1500 * 1000;

static int64_t longer(int64_t pause)
{
    return pause == 0 ? FIRST_PAUSE : 2 * pause > LONGEST_PAUSE ? LONGEST_PAUSE : 2 * pause;
}

/* Is a huge page fast here? Changes the pause. */
static bool fast(fxi_huge_pages *state, int64_t took)
{
    const int64_t pause = __atomic_load_n(&state->pause, __ATOMIC_RELAXED);
    if (took < 0 || took > SLOW) {
        __atomic_store_n(&state->pause, longer(pause), __ATOMIC_RELAXED);
        __atomic_store_n(&state->left, longer(pause), __ATOMIC_RELAXED);
    } else if (took >= USED_BEFORE) {
        __atomic_store_n(&state->pause, 0, __ATOMIC_RELAXED);
    }
    return took >= 0 && took <= SLOW;
}

void fxi_huge_pages_request(fxi_huge_pages *state, const fxi_huge_pages_calls *calls, void *at,
                            size_t bytes)
{
    for (size_t done = 0; done < bytes; done += (size_t)PIECE) {
        const size_t piece = bytes - done < (size_t)PIECE ? bytes - done : (size_t)PIECE;
        const int64_t left = __atomic_load_n(&state->left, __ATOMIC_RELAXED);
        if (left > 0)
            __atomic_store_n(&state->left, left - (int64_t)piece, __ATOMIC_RELAXED);
        else if (fast(state, calls->try_one((char *)at + done)))
            calls->request((char *)at + done, piece);
    }
}
