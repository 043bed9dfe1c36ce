/* command_launch.c: cflux launch: starts a program several times, for distributed training.
 *
 * Slurm's srun or an MPI's mpirun starts the processes. Each of them is `cflux launch --each`,
 * which starts the program and says how it ended. The launchers kill all processes when one dies,
 * but their messages name a node and a signal, not the rank and its last operation.
 */
#include "failure.h"
#include "join_timelines.h"
#include "options.h"
#include "output_paths.h"
#include "system.h"
#include <stdlib.h>
#include <string.h>

static int64_t processes = 1, restarts;
static double grace = 30;
static const char *hosts, *with, *timeline;
static bool each;

static option_row options[] = {
    {"processes", 'n', OPTION_INTEGER, &processes, "N", "The number of processes (default: 1)", 1,
     1e6},
    {"hosts", 0, OPTION_TEXT, &hosts, "LIST",
     "The machines: node1:4,node2:4 for mpirun, node1,node2 for srun (default: those of the Slurm "
     "job, else this one)",
     0, 0},
    {"max-restarts", 0, OPTION_INTEGER, &restarts, "K",
     "Start all processes again, at most K times, after one has failed (default: 0)", 0, 1e6},
    {"grace", 0, OPTION_NUMBER, &grace, "SECONDS",
     "End the launcher if it still runs this long after a process has failed, on this machine or "
     "on one that shares its folder for temporary files (default: 30)",
     0.001, 1e6},
    {"launcher", 0, OPTION_TEXT, &with, "PROGRAM",
     "srun, or an mpirun (default: srun in a Slurm job, else the mpirun of the MPI "
     "library whose plugin is installed)",
     0, 0},
    {"timeline", 0, OPTION_TEXT, &timeline, "FILE",
     "Record when each process computes, communicates and waits, for https://ui.perfetto.dev", 0,
     0},
    {"each", 0, OPTION_FLAG, &each, NULL,
     "Internal: start one process and report how it ended. cflux launch uses this option itself", 0,
     0},
    OPTIONS_END,
};

/* ---- one process (--each) -------------------------------------------------------------------- */

/* Reads the variables of the launchers. Those of an mpirun come first, because a process in a Slurm
 * job has inherited SLURM_PROCID too. */
static const char *rank_of_process(void)
{
    static const char *const variables[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
                                            "SLURM_PROCID"};
    const char *rank = NULL;
    for (size_t k = 0; !rank && k < sizeof variables / sizeof *variables; k++)
        rank = getenv(variables[k]);
    return rank ? rank : "0";
}

/* Writes "; its last operation was number 128, all_reduce (mean) of 100 Float32": the one that the
 * library noted last. "" if it noted none. */
static void read_progress(FILE *f, char *text, size_t size)
{
    char line[300] = "";
    rewind(f);
    if (fgets(line, sizeof line, f))
        line[strcspn(line, "\n")] = 0;
    snprintf(text, size, "%s%s", *line ? "; its last operation was number " : "", line);
}

/* The environment variable with the path of a file. A process that has failed, or that the launcher
 * ends because a process on another machine has failed, writes to the file. It exists on other
 * machines only if they share the folder. */
#define FAILURE_FILE "CFLUX_LAUNCH_FAILURE"

static void note_failure(void)
{
    const char *path = getenv(FAILURE_FILE);
    FILE *f = path ? open_file(path, "r+b") : NULL;
    if (!f)
        return;
    fputs("failed\n", f);
    fclose(f);
}

static bool exists(const char *path)
{
    return kind_of_path(path) != PATH_ABSENT;
}

/* True if a process has written to the file. */
static bool has_failed(void *path)
{
    FILE *f = open_file(path, "rb");
    const bool failed = f && fgetc(f) != EOF;
    if (f)
        fclose(f);
    return failed;
}

/* Prints how a rank ended. */
static void report(const char *how, const char *last)
{
    char host[256];
    host_name(host, sizeof host);
    fprintf(stderr, "cflux launch: rank %s on %s %s%s\n", rank_of_process(), host, how, last);
}

/* True if this process can know whether another rank has failed before it is killed: the file of
 * failures is on this machine (the launcher removes it at its end, so this is set at the start), or
 * the launcher is Open MPI's, which sends SIGTERM first, so that SIGKILL has another cause. */
static bool failures_are_known;

/* Runs in a process of its own when this one has been killed: a launcher then names the process,
 * not the rank. If another rank has failed before, the launcher may have killed this process
 * because of that: the launcher of MPICH sends SIGKILL. Where this is not known, the cause is
 * not guessed. */
static void report_killed(int number, void *progress)
{
    char how[160], last[400];
    const char *path = getenv(FAILURE_FILE);
    if (!failures_are_known || (path && has_failed((void *)(uintptr_t)path)))
        return;
    note_failure();
    read_progress(progress, last, sizeof last);
    snprintf(how, sizeof how,
             "lost its wrapper (cflux launch --each), which was killed by signal %d (%s)", number,
             signal_name(number));
    report(how, last);
}

static int run_each(char **program)
{
    char path[FILE_PATH_BYTES], last[400], how[100];
    FILE *progress = nameless_file(path);
    if (!progress)
        return fail(EXIT_FAILED, "cannot create a temporary file for the progress of a rank");
    set_variable("FX_DIST_PROGRESS", path);
    const char *failures = getenv(FAILURE_FILE);
    failures_are_known = !failures || exists(failures) || getenv("OMPI_COMM_WORLD_RANK");
    if (!guard_begin(report_killed, progress))
        return fail(EXIT_FAILED, "cannot start a process that guards this one");
    /* `true`: if this process is killed, the program gets SIGKILL, because a stopped program does
     * not handle SIGTERM. */
    const int status = run_program(program, true);
    guard_end();
    read_progress(progress, last, sizeof last);
    fclose(progress);
    if (status == 0)
        return status;
    note_failure();
    /* After a signal that was passed on, nothing is printed: the launcher ends this process because
     * another one died. */
    if (passed_on())
        return status < 0 ? 128 - status : status;
    if (status < 0)
        snprintf(how, sizeof how, "was killed by signal %d (%s)", -status, signal_name(-status));
    else if (status == EXIT_NOT_STARTED)
        snprintf(how, sizeof how, "could not start %.60s", program[0]);
    else
        snprintf(how, sizeof how, "ended with status %d", status);
    report(how, last);
    return status < 0 ? 128 - status : status;
}

/* ---- the launcher ---------------------------------------------------------------------------- */

typedef enum flavour { SRUN, OPEN_MPI, MPICH } flavour;
static const struct {
    const char *program, *plugin, *hosts;
    flavour is;
} launchers[] = {{"srun", NULL, "--nodelist", SRUN},
                 {"mpirun.openmpi", "openmpi", "--host", OPEN_MPI},
                 {"mpirun.mpich", "mpich", "-hosts", MPICH},
                 {"mpiexec.hydra", "mpich", "-hosts", MPICH},
                 {"mpirun", NULL, "--host", OPEN_MPI}};
enum { LAUNCHERS = sizeof launchers / sizeof *launchers };

typedef struct plugins {
    bool openmpi, mpich;
} plugins;

static void note_plugin(const fx_plugin_info *plugin, void *user)
{
    plugins *p = user;
    p->openmpi |= strcmp(plugin->name, "openmpi") == 0;
    p->mpich |= strcmp(plugin->name, "mpich") == 0;
}

static bool has_plugin(const char *name)
{
    plugins p = {false, false};
    fx_plugins(note_plugin, &p);
    return strcmp(name, "openmpi") == 0 ? p.openmpi : p.mpich;
}

/* A launcher that is only named "mpirun" is asked for its version, to learn which MPI it belongs
 * to. */
static flavour flavour_of(int which, const char *path)
{
    char text[400] = "";
    if (strcmp(launchers[which].program, "mpirun") != 0)
        return launchers[which].is;
    read_program((char *[]){(char *)(uintptr_t)path, "--version", NULL}, text, sizeof text);
    return strstr(text, "Open MPI") || strstr(text, "OpenRTE") ? OPEN_MPI : MPICH;
}

static const char *name_in(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool is_wanted(int which)
{
    if (with)
        return strcmp(name_in(with), launchers[which].program) == 0;
    /* Outside a job, srun would request one, so it is the default only in a job. */
    return launchers[which].is == SRUN
               ? getenv("SLURM_JOB_ID") != NULL
               : !launchers[which].plugin || has_plugin(launchers[which].plugin);
}

static int find_launcher(char path[FILE_PATH_BYTES], flavour *out)
{
    for (int k = 0; k < LAUNCHERS; k++)
        if (is_wanted(k) && find_program(with ? with : launchers[k].program, path)) {
            *out = flavour_of(k, path);
            return k;
        }
    if (with && find_program(with, path)) {
        *out = flavour_of(LAUNCHERS - 1, path);
        return LAUNCHERS - 1;
    }
    return -1;
}

/* The option for the interface by which srun connects the processes to an MPI; NULL: srun decides.
 * Slurm's own default, none, connects no processes. */
static const char *mpi_of_srun(const char *srun)
{
    static const struct {
        const char *plugin, *option;
    } known[] = {{"openmpi", "--mpi=pmix"}, {"mpich", "--mpi=pmi2"}};
    char text[1 << 15] = "";
    read_program((char *[]){"scontrol", "show", "config", NULL}, text, sizeof text);
    const char *line = strstr(text, "MpiDefault ");
    line = line ? line + strcspn(line, "=\n") : "";
    if (getenv("SLURM_MPI_TYPE") || strncmp(line, "= none\n", 7) != 0)
        return NULL;
    read_program((char *[]){(char *)(uintptr_t)srun, "--mpi=list", NULL}, text, sizeof text);
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        if (has_plugin(known[k].plugin) && strstr(text, known[k].option + strlen("--mpi=")))
            return known[k].option;
    return NULL;
}

static int no_launcher(void)
{
    return with
               ? fail(EXIT_BAD_INPUT, "there is no program %s", with)
               : fail(EXIT_BAD_INPUT,
                      "found no launcher (mpirun, or srun in a Slurm job): install an MPI (Debian: "
                      "openmpi-bin or mpich) and cflux's plugin for it");
}

/* ---- starting -------------------------------------------------------------------------------- */

enum { ARGUMENTS = 24 };
typedef struct line {
    char *words[ARGUMENTS + 1];
    int n;
} line;

static void add_word(line *l, const char *word)
{
    if (l->n < ARGUMENTS)
        l->words[l->n++] = (char *)(uintptr_t)word;
}

/* "2", kept while the command runs. */
static const char *number_text(void)
{
    static char text[32];
    snprintf(text, sizeof text, "%lld", (long long)processes);
    return text;
}

static void begin_line(line *l, int which, flavour is, const char *launcher)
{
    add_word(l, launcher);
    add_word(l, "-n");
    add_word(l, number_text());
    if (is == SRUN) {
        const char *mpi = mpi_of_srun(launcher);
        add_word(l, "--kill-on-bad-exit=1");
        if (mpi)
            add_word(l, mpi);
    }
    if (is == OPEN_MPI && !hosts)
        add_word(l, "--oversubscribe");
    for (int k = 0; is == OPEN_MPI && k < 2 + (timeline != NULL); k++) {
        static const char *const passed[] = {"CFLUX_RESTART", FAILURE_FILE, "FX_TIMELINE"};
        add_word(l, "-x"); /* on other machines, mpirun sets only these variables */
        add_word(l, passed[k]);
    }
    if (hosts) {
        add_word(l, is == MPICH ? "-hosts" : launchers[which].hosts);
        add_word(l, hosts);
    }
}

/* A launcher ends all processes when one has failed. But Open MPI's launcher waits for machines
 * that it can no longer reach. */
static int run_launcher(char **words)
{
    char path[FILE_PATH_BYTES];
    program_watch watch = {.failed = has_failed, .user = path, .grace = grace};
    if (!temporary_file(path))
        return fail(EXIT_FAILED, "cannot create a temporary file");
    set_variable(FAILURE_FILE, path);
    const int status = run_watched(words, &watch);
    remove_file(path);
    if (watch.ended)
        fprintf(stderr,
                "cflux launch: %s still ran %g seconds after a process had failed, and was ended\n",
                name_in(words[0]), grace);
    return watch.ended && status == 0 ? EXIT_FAILED : status;
}

static int once(int which, flavour is, const char *launcher, const char *own, int n, char **program)
{
    line l = {.n = 0};
    begin_line(&l, which, is, launcher);
    add_word(&l, own);
    add_word(&l, "launch");
    add_word(&l, "--each");
    add_word(&l, "--");
    char **all = calloc((size_t)(l.n + n) + 1, sizeof *all);
    if (!all)
        return fail_library(EXIT_FAILED);
    memcpy(all, l.words, (size_t)l.n * sizeof *all);
    memcpy(all + l.n, program, (size_t)n * sizeof *all);
    const int status = run_launcher(all);
    free(all);
    /* After a signal, Open MPI's launcher exits with status 1, and MPICH's with that of the signal,
     * or 0 if it was still starting processes. srun only reports a first Ctrl-C, and the job may
     * still succeed. */
    if (passed_on() && (status != 0 || is == MPICH))
        return 128 + passed_on();
    return status < 0 ? 128 - status : status;
}

/* Refuses the argument ":", because mpirun starts the words after it as another program. */
static int check_arguments(flavour is, int n, char **program)
{
    for (int k = 0; is != SRUN && k < n; k++)
        if (strcmp(program[k], ":") == 0)
            return fail(EXIT_BAD_INPUT,
                        "the argument \":\" separates programs for mpirun: start the program in a "
                        "script that has this argument");
    return EXIT_FINE;
}

static int run_launch(int n, char **program)
{
    char launcher[FILE_PATH_BYTES], own[FILE_PATH_BYTES], number[32];
    flavour is = OPEN_MPI;
    if (each)
        return run_each(program);
    const int which = find_launcher(launcher, &is);
    if (which < 0)
        return no_launcher();
    if (check_arguments(is, n, program) != EXIT_FINE)
        return EXIT_BAD_INPUT;
    if (!own_path(own))
        return fail(EXIT_FAILED, "the path of cflux itself is not known");
    if (timeline && check_outputs(&(output_path){timeline, "--timeline"}, 1, NULL, 0) != EXIT_FINE)
        return EXIT_BAD_INPUT;
    if (timeline)
        set_variable("FX_TIMELINE", timeline);
    for (int64_t k = 0;; k++) {
        snprintf(number, sizeof number, "%lld", (long long)k);
        set_variable("CFLUX_RESTART", number);
        const int status = once(which, is, launcher, own, n, program);
        const bool final =
            status == 0 || status == EXIT_NOT_STARTED || k == restarts || passed_on();
        if (final && timeline && status != EXIT_NOT_STARTED) {
            const int joined = join_timelines(timeline, processes);
            return status == 0 ? joined : status;
        }
        if (final)
            return status;
        fprintf(stderr, "cflux launch: starts all %lld processes again (%lld of %lld)\n",
                (long long)processes, (long long)k + 1, (long long)restarts);
    }
}

const command command_launch = {
    .name = "launch",
    .summary = "Start a program in several processes, for distributed training",
    .operands = "PROGRAM [ARGUMENT]…",
    .least = 1,
    .most = -1,
    .examples = "cflux launch -n 4 ./train\n"
                "cflux launch -n 8 --hosts node1:4,node2:4 --max-restarts 3 ./train\n",
    .about =
        "Uses srun in a Slurm job, else the mpirun of the MPI library whose plugin is installed. "
        "If a process fails, all processes end, and one line gives its rank, its machine, how it "
        "ended and its last operation. --max-restarts then starts all processes again, with the "
        "number of the restart in the environment variable CFLUX_RESTART. The program must "
        "continue from its checkpoint, as cflux train --checkpoint does.\n"
        "Options after PROGRAM are passed to the program.",
    .options = options,
    .operands_end_options = true,
    .run = run_launch,
};
