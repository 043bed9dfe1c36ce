/* progress.c: prints the progress bar of fx_train.
 *
 *   epoch 3/10 ███████████████···············  50 %  1234 batches/s  0:07 left  loss 0.1234
 *   epoch 3/10  1234 batches/s  0.8 s  loss 0.1234                      (not a terminal)
 *
 * On a terminal the line fits the width, also after a resize: first the bar is shortened, then
 * rate, time left and percentage are removed, and then the end of the line is cut off.
 *
 * The rate is the average of the whole run and the time left covers all remaining epochs, so
 * neither jumps at the start of an epoch. The loss is the mean over the epoch so far.
 */
#include "progress.h"
#include "c_text.h"
#include "terminal.h"
#include "utf8.h"

enum { BAR_CELLS = 30, FIRST_LINES = 20 };
static const double REDRAW_SECONDS = 0.1;

void fxi_meter_open(fxi_meter *meter, FILE *out)
{
    *meter = (fxi_meter){.out = out, .drawn_at = -1};
    meter->terminal = out && fxi_is_terminal(out);
}

static double rate(const fxi_meter *meter, const fx_progress *p)
{
    return p->seconds > 0 ? (double)(p->step - meter->steps_before) / p->seconds : 0;
}

static const char *gap_before(const char *note)
{
    return *note ? "  " : "";
}

/* ---- the line on a terminal ------------------------------------------------------------------ */

enum { UNKNOWN_COLUMNS = 80, LEAST_CELLS = 5 };
/* A longer time left, about 30 years, is not shown: a callback will end the training. */
enum { MOST_SECONDS = 1000000000 };

/* The parts of the line, in order. The bar is between HEAD and PERCENT. */
enum { HEAD, PERCENT, RATE, LEFT, LOSS, NOTE, PARTS };
enum { PART_BYTES = 256 };
typedef char part_text[PART_BYTES];

/* Queried for each line, because a terminal may be resized. */
static int columns_of(FILE *out)
{
    const int columns = fxi_terminal_columns(out);
    return columns > 0 ? columns : UNKNOWN_COLUMNS;
}

static void fill_parts(part_text parts[PARTS], const fxi_meter *meter, const fx_progress *p,
                       const char *note)
{
    const int64_t batches = p->batches ? p->batches : 1;
    /* Not from p->step: the training steps before a checkpoint may have had other batches. */
    const double left =
        (double)(p->epochs - p->epoch) * (double)p->batches + (double)(p->batches - p->batch);
    const double seconds = rate(meter, p) > 0 ? left / rate(meter, p) + 0.5 : 0;
    snprintf(parts[HEAD], PART_BYTES, "epoch %lld/%lld", (long long)p->epoch, (long long)p->epochs);
    snprintf(parts[PERCENT], PART_BYTES, " %3d %%", (int)(100 * p->batch / batches));
    fxi_snprintf(parts[RATE], PART_BYTES, "  %.0f batches/s", rate(meter, p));
    *parts[LEFT] = 0;
    if (seconds < MOST_SECONDS)
        snprintf(parts[LEFT], PART_BYTES, "  %d:%02d left", (int)seconds / 60, (int)seconds % 60);
    fxi_snprintf(parts[LOSS], PART_BYTES, "  loss %.4g", p->mean_loss);
    snprintf(parts[NOTE], PART_BYTES, "%s%s", gap_before(note), note);
}

/* Removes parts until the line fits; returns its width in columns. */
static int fit(part_text parts[PARTS], int available)
{
    static const int dispensable[] = {RATE, LEFT, PERCENT};
    int columns = 0;
    for (int i = 0; i < PARTS; i++)
        columns += fxi_text_columns(parts[i]);
    for (size_t i = 0; i < sizeof dispensable / sizeof *dispensable && columns > available; i++) {
        columns -= fxi_text_columns(parts[dispensable[i]]);
        *parts[dispensable[i]] = 0;
    }
    return columns;
}

/* Prints as much of the text as fits; *io_available: columns left. */
static void put_cut(FILE *out, const char *text, int *io_available)
{
    while (*text) {
        size_t bytes;
        const int columns = fxi_character_columns(text, &bytes);
        if (columns > *io_available) {
            *io_available = 0;
            return;
        }
        fwrite(text, 1, bytes, out);
        text += bytes;
        *io_available -= columns;
    }
}

/* Leaves the final column empty: a character there makes some terminals begin a new line. */
static void draw(fxi_meter *meter, const fx_progress *p, const char *note)
{
    part_text parts[PARTS];
    int available = columns_of(meter->out) - 1;
    fill_parts(parts, meter, p, note);
    const int free_columns = available - fit(parts, available) - 1;
    const int cells = free_columns < LEAST_CELLS ? 0
                      : free_columns < BAR_CELLS ? free_columns
                                                 : BAR_CELLS;
    const int filled = (int)(cells * p->batch / (p->batches ? p->batches : 1));
    fputc('\r', meter->out);
    put_cut(meter->out, parts[HEAD], &available);
    for (int i = 0; i < cells; i++)
        fputs(i < filled ? i ? "█" : " █" : i ? "·" : " ·", meter->out);
    available -= cells ? cells + 1 : 0;
    for (int i = PERCENT; i < PARTS; i++)
        put_cut(meter->out, parts[i], &available);
    fputs("\033[K", meter->out);
    fflush(meter->out);
    meter->line_open = true;
    meter->drawn_at = p->seconds;
}

void fxi_meter_batch(fxi_meter *meter, const fx_progress *p)
{
    if (meter->terminal && (meter->drawn_at < 0 || p->seconds - meter->drawn_at >= REDRAW_SECONDS))
        draw(meter, p, "");
}

bool fxi_meter_due(const fxi_meter *meter, const fx_progress *p)
{
    const bool paced =
        meter->lines < FIRST_LINES || p->seconds - meter->epoch_line_at >= REDRAW_SECONDS;
    return meter->out && (paced || p->epoch == p->epochs);
}

void fxi_meter_epoch(fxi_meter *meter, const fx_progress *p, const char *note)
{
    if (meter->terminal) {
        draw(meter, p, note);
        fxi_meter_close(meter);
    } else {
        char numbers[PART_BYTES];
        fxi_snprintf(numbers, sizeof numbers, "%.0f batches/s  %.1f s  loss %.4g", rate(meter, p),
                     p->seconds - meter->epoch_began, p->mean_loss);
        fprintf(meter->out, "epoch %lld/%lld  %s%s%s\n", (long long)p->epoch, (long long)p->epochs,
                numbers, gap_before(note), note);
        fflush(meter->out);
    }
    meter->epoch_line_at = p->seconds;
    meter->lines++;
}

void fxi_meter_close(fxi_meter *meter)
{
    if (meter->line_open)
        fputc('\n', meter->out);
    meter->line_open = false;
}
