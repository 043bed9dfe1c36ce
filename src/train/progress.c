/* progress.c: the progress bar.
 *
 *   epoch 3/10 ███████████████···············  50 %  1234 batches/s  0:07 left  loss 0.1234
 *   epoch 3/10  1234 batches/s  0.8 s  loss 0.1234                      (not a terminal)
 *
 * The rate is that of the whole run and the time left covers all remaining epochs, so neither jumps
 * at the start of an epoch. The loss is the mean over the epoch so far.
 */
#include "progress.h"

#include <time.h>
#include <unistd.h>

enum { BAR_CELLS = 30, FIRST_LINES = 20 };
static const double REDRAW_SECONDS = 0.1;

double fxi_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void fxi_meter_open(fxi_meter *meter, FILE *out)
{
    const int descriptor = out ? fileno(out) : -1;
    *meter = (fxi_meter){.out = out, .last_drawn = -1};
    meter->terminal = descriptor >= 0 && isatty(descriptor);
}

static double rate(const fxi_meter *meter, const fx_progress *p)
{
    return p->seconds > 0 ? (double)(p->step - meter->steps_before) / p->seconds : 0;
}

static const char *gap_before(const char *note)
{
    return *note ? "  " : "";
}

static void draw(fxi_meter *meter, const fx_progress *p, const char *note)
{
    const int64_t total = p->epochs * p->batches, left = total - p->step;
    const int filled = (int)(BAR_CELLS * p->batch / (p->batches ? p->batches : 1));
    const int seconds = rate(meter, p) > 0 ? (int)((double)left / rate(meter, p) + 0.5) : 0;
    fprintf(meter->out, "\repoch %lld/%lld ", (long long)p->epoch, (long long)p->epochs);
    for (int i = 0; i < BAR_CELLS; i++)
        fputs(i < filled ? "█" : "·", meter->out);
    fprintf(meter->out, " %3d %%  %.0f batches/s  %d:%02d left  loss %.4g%s%s\033[K",
            (int)(100 * p->batch / (p->batches ? p->batches : 1)), rate(meter, p), seconds / 60,
            seconds % 60, p->mean_loss, gap_before(note), note);
    fflush(meter->out);
    meter->line_open = true;
    meter->last_drawn = p->seconds;
}

void fxi_meter_batch(fxi_meter *meter, const fx_progress *p)
{
    if (meter->terminal &&
        (meter->last_drawn < 0 || p->seconds - meter->last_drawn >= REDRAW_SECONDS))
        draw(meter, p, "");
}

bool fxi_meter_due(const fxi_meter *meter, const fx_progress *p)
{
    const bool paced =
        meter->lines < FIRST_LINES || p->seconds - meter->last_line >= REDRAW_SECONDS;
    return meter->out && (paced || p->epoch == p->epochs);
}

void fxi_meter_epoch(fxi_meter *meter, const fx_progress *p, const char *note)
{
    if (meter->terminal) {
        draw(meter, p, note);
        fxi_meter_close(meter);
    } else {
        fprintf(meter->out, "epoch %lld/%lld  %.0f batches/s  %.1f s  loss %.4g%s%s\n",
                (long long)p->epoch, (long long)p->epochs, rate(meter, p),
                p->seconds - meter->epoch_began, p->mean_loss, gap_before(note), note);
        fflush(meter->out);
    }
    meter->last_line = p->seconds;
    meter->lines++;
}

void fxi_meter_close(fxi_meter *meter)
{
    if (meter->line_open)
        fputc('\n', meter->out);
    meter->line_open = false;
}
