/* slow_switch.c: a network switch that delays, reorders, loses or holds frames (hosts.py).
 *
 *   slow_switch CONTROL SEED TAP...
 *
 * It makes a TAP device for each host and prints "ready"; the caller then moves each device into
 * the network namespace of its host, as a network card. Host k (from 1) must have the MAC address
 * 02:00:00:00:00:k. A frame for another address goes to all hosts but its sender. Commands come
 * from the pipe CONTROL, which is made here, one a line of at most PIPE_BUF bytes:
 *
 *   delay K LEAST MOST ORDERED LOST   each frame that host K sends is delayed by LEAST to MOST
 *                                     microseconds, drawn at random, and LOST of a million frames
 *                                     are lost. ORDERED 1: a frame never overtakes an earlier one.
 *   pause K MS FILE                   holds all frames from and to host K; then makes FILE
 *   report FILE                       writes the counters of all hosts to FILE and clears them
 *
 * The kernel's netem does the same, but many kernels are built without it. A TAP device has no
 * offloads without IFF_VNET_HDR: no frame is larger than the MTU, and all checksums are computed.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { HOSTS = 8, FRAMES = 1 << 16, FRAME_BYTES = 1600 };

typedef struct frame {
    int64_t due, arrived; /* nanoseconds */
    uint64_t number;      /* of all frames, in the order of arrival */
    int from, to;         /* hosts, from 0 */
    int size;
    char data[FRAME_BYTES];
} frame;

typedef struct host {
    int device;
    int64_t least, most; /* delay of a frame that it sends, in nanoseconds */
    int lost_of_million;
    bool ordered;
    int64_t last_due;     /* of the frames that it sent */
    int64_t paused_until; /* of the link, both directions */
    uint64_t newest;      /* frame of this sender with the largest number that was delivered */
    int64_t delivered, overtaken, lost, paused; /* frames that it sent, since the last report */
    int64_t least_held, total_held;             /* nanoseconds, of the frames delivered */
} host;

static host hosts[HOSTS];
static int host_count;
static frame *heap[FRAMES]; /* the first is the next one that is due */
static int frame_count;
static uint64_t frame_number, random_state;

static void fail(const char *what)
{
    fprintf(stderr, "slow_switch: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A number from 0 to n − 1 (xorshift64*; Vigna 2016). */
static int64_t draw(int64_t n)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (int64_t)((random_state * 0x2545F4914F6CDD1Du >> 33) % (uint64_t)n);
}

/* ---- frames that wait ------------------------------------------------------------------------ */

static bool is_before(const frame *a, const frame *b)
{
    return a->due != b->due ? a->due < b->due : a->number < b->number;
}

static void push(frame *f)
{
    int at = frame_count++;
    for (; at > 0 && is_before(f, heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = f;
}

static frame *pop(void)
{
    frame *const first = heap[0], *const last = heap[--frame_count];
    int at = 0;
    for (int child; (child = 2 * at + 1) < frame_count; at = child) {
        child += child + 1 < frame_count && is_before(heap[child + 1], heap[child]);
        if (!is_before(heap[child], last))
            break;
        heap[at] = heap[child];
    }
    heap[at] = last;
    return first;
}

/* Draws the time at which a frame is due. A frame that is lost, or for which there is no memory, is
 * dropped. */
static void take(int from, int to, const char *data, int size, int64_t time)
{
    host *const h = &hosts[from];
    const bool is_lost = draw(1000000) < h->lost_of_million;
    frame *const f = is_lost || frame_count == FRAMES ? NULL : malloc(sizeof *f);
    h->lost += !f;
    if (!f)
        return;
    f->arrived = time;
    f->due = time + h->least + draw(h->most - h->least + 1);
    if (h->ordered && f->due < h->last_due)
        f->due = h->last_due;
    h->last_due = f->due;
    f->number = ++frame_number;
    f->from = from;
    f->to = to;
    f->size = size;
    memcpy(f->data, data, (size_t)size);
    push(f);
}

static void receive(int from)
{
    static const char first[5] = {2};
    char data[FRAME_BYTES];
    for (;;) {
        const ssize_t size = read(hosts[from].device, data, sizeof data);
        if (size < 14)
            return;
        const int to = memcmp(data, first, sizeof first) == 0 ? data[5] - 1 : -1;
        const int64_t time = now();
        for (int k = 0; k < host_count; k++)
            if (k != from && (to < 0 || to == k))
                take(from, k, data, (int)size, time);
    }
}

static void deliver(frame *f, int64_t time)
{
    host *const h = &hosts[f->from];
    const int64_t held = time - f->arrived;
    /* A host that refuses a frame, because its device is not up or its queue is full, loses it. */
    const ssize_t written = write(hosts[f->to].device, f->data, (size_t)f->size);
    h->lost += written != f->size;
    h->least_held = h->delivered == 0 || held < h->least_held ? held : h->least_held;
    h->total_held += held;
    h->delivered++;
    h->overtaken += f->number < h->newest;
    h->newest = f->number > h->newest ? f->number : h->newest;
    free(f);
}

/* Delivers the frames that are due. Returns the time at which the next one is due. */
static int64_t deliver_due(void)
{
    const int64_t time = now();
    while (frame_count > 0 && heap[0]->due <= time) {
        frame *const f = pop();
        const int64_t from = hosts[f->from].paused_until, to = hosts[f->to].paused_until;
        const int64_t until = from > to ? from : to;
        if (until > time) {
            f->due = until;
            hosts[f->from].paused++;
            push(f);
        } else {
            deliver(f, time);
        }
    }
    return frame_count > 0 ? heap[0]->due : INT64_MAX;
}

/* ---- commands -------------------------------------------------------------------------------- */

/* The file appears under its name when it is complete. */
static void write_file(const char *path, bool reports)
{
    char new[PIPE_BUF + 4];
    snprintf(new, sizeof new, "%s.new", path);
    FILE *const file = fopen(new, "w");
    if (!file)
        fail(new);
    for (int k = 0; reports && k < host_count; k++) {
        host *const h = &hosts[k];
        fprintf(file, "%lld %lld %lld %lld %g %g\n", (long long)h->delivered,
                (long long)h->overtaken, (long long)h->lost, (long long)h->paused,
                (double)h->least_held * 1e-6,
                h->delivered > 0 ? (double)h->total_held * 1e-6 / (double)h->delivered : 0);
        h->delivered = h->overtaken = h->lost = h->paused = h->least_held = h->total_held = 0;
    }
    if (fclose(file) != 0 || rename(new, path) != 0)
        fail(path);
}

static void obey(const char *line)
{
    char path[PIPE_BUF];
    int k, ordered, lost;
    long long least, most, ms;
    if (sscanf(line, "delay %d %lld %lld %d %d", &k, &least, &most, &ordered, &lost) == 5 &&
        k >= 1 && k <= host_count && least >= 0 && most >= least) {
        hosts[k - 1].least = least * 1000;
        hosts[k - 1].most = most * 1000;
        hosts[k - 1].ordered = ordered != 0;
        hosts[k - 1].lost_of_million = lost;
    } else if (sscanf(line, "pause %d %lld %s", &k, &ms, path) == 3 && k >= 1 && k <= host_count) {
        hosts[k - 1].paused_until = now() + ms * 1000000;
        write_file(path, false);
    } else if (sscanf(line, "report %s", path) == 1) {
        write_file(path, true);
    } else {
        errno = EINVAL;
        fail(line);
    }
}

static void read_commands(int control)
{
    static char text[2 * PIPE_BUF];
    static size_t size;
    const ssize_t n = read(control, text + size, PIPE_BUF);
    size += n > 0 ? (size_t)n : 0;
    char *begin = text, *end;
    while ((end = memchr(begin, '\n', size - (size_t)(begin - text)))) {
        *end = 0;
        obey(begin);
        begin = end + 1;
    }
    size -= (size_t)(begin - text);
    memmove(text, begin, size);
    if (size >= PIPE_BUF) {
        errno = E2BIG;
        fail("a command");
    }
}

/* ---- the loop -------------------------------------------------------------------------------- */

static int open_device(const char *name)
{
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
    const int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    if (device < 0 || ioctl(device, TUNSETIFF, &request) != 0)
        fail(name);
    return device;
}

int main(int argc, char **argv)
{
    if (argc < 4 || argc > HOSTS + 3) {
        fprintf(stderr, "usage: slow_switch CONTROL SEED TAP...\n");
        return 2;
    }
    struct pollfd polled[HOSTS + 1];
    random_state = strtoull(argv[2], NULL, 10) * 2 + 1;
    host_count = argc - 3;
    for (int k = 0; k < host_count; k++) {
        hosts[k] = (host){.device = open_device(argv[k + 3]), .ordered = true};
        polled[k] = (struct pollfd){.fd = hosts[k].device, .events = POLLIN};
    }
    /* The pipe is open for writing here too, so that it has no end when a writer closes it. */
    const int control =
        mkfifo(argv[1], 0600) == 0 ? open(argv[1], O_RDWR | O_NONBLOCK | O_CLOEXEC) : -1;
    if (control < 0)
        fail(argv[1]);
    polled[host_count] = (struct pollfd){.fd = control, .events = POLLIN};
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        const int64_t due = deliver_due(), time = now(), wait = due > time ? due - time : 0;
        const struct timespec timeout = {.tv_sec = wait / 1000000000, .tv_nsec = wait % 1000000000};
        if (ppoll(polled, (nfds_t)host_count + 1, due == INT64_MAX ? NULL : &timeout, NULL) < 0)
            fail("ppoll");
        if (polled[host_count].revents)
            read_commands(control);
        for (int k = 0; k < host_count; k++)
            if (polled[k].revents)
                receive(k);
    }
}
