/* Which device is chosen: Flux 0.14's order, preferences and messages; the preference file. The
 * backends are the CPU's under other names: what is tested is the choice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <cflux.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends.h"
#include "preferences.h"
#include "registry.h"
#include "read_back.h"
#include "temp_file.h"

static char said[2000];
static int said_level, messages;

static void listen(int level, const char *text, void *user)
{
    (void)user;
    said_level = level;
    messages++;
    snprintf(said, sizeof said, "%s", text);
}

static char project[200], file[300];

/* A project with this preference file (NULL: none). */
static void prefer(const char *text)
{
    unlink(file);
    if (text) {
        FILE *f = fopen(file, "wb");
        assert_non_null(f);
        assert_true(fputs(text, f) >= 0);
        assert_int_equal(fclose(f), 0);
    }
    fxi_preferences_reset();
    messages = 0;
    *said = 0;
}

static void says(int level, const char *text)
{
    assert_int_equal(said_level, level);
    assert_string_equal(said, text);
}

static fx_backend fakes[4];

/* A backend that computes as the CPU does. */
static void add_fake(int i, const char *name, int devices, const char *why)
{
    fakes[i] = fxi_cpu_backend;
    fakes[i].head.name = name;
    assert_int_equal(fxi_backend_register(&fakes[i], devices, why), FX_OK);
}

static const char *chosen(void)
{
    return fx_device_name(fx_get_device(.verbose = true));
}

/* The reason for a backend that was requested and is not installed. */
#define WHY "it is not installed: there is no libcflux-cuda"
static void starts(const char *text, const char *with)
{
    if (strncmp(text, with, strlen(with)) != 0)
        fail_msg("\"%s\" does not start with \"%s\"", text, with);
}

/* ---- without any backend --------------------------------------------------------------------- */

static void nothing_is_loaded(void **state)
{
    (void)state;
    FX_SCOPE;
    prefer(NULL);
    assert_string_equal(fx_gpu_backend(), "");
    assert_string_equal(chosen(), "CPU");
    says(0, "Using backend: CPU.");
    assert_int_equal(messages, 1);
    assert_false(fx_functional("CUDA"));
    assert_true(fx_functional("CPU"));
    assert_true(strlen(fx_why_not("CUDA")) > 0);
    assert_string_equal(fx_why_not("CPU"), "");
    assert_true(fx_is_error(fx_gpu_strict(fx_ones(2))));
    assert_string_equal(
        fx_error_take().message,
        "gpu_strict: No functional GPU device found: no GPU backend is loaded: call "
        "fx_use(\"CUDA\"), for example, or fx_use_all()");
    fx_device_get("CUDA", 0);
    assert_non_null(strstr(fx_error_take().message, "Try loading it with fx_use(\"CUDA\")"));
    assert_int_equal(fx_use("CUDA"), FX_STATUS_DEVICE);
    assert_int_equal(fx_error_take().status, FX_OK); /* this does not record an error */
    assert_non_null(strstr(fx_why_not("CUDA"), WHY));
    static const char *const order[] = {"CUDA", "AMDGPU", "Metal", "OpenCL", "CPU"};
    for (int i = 0; i < 5; i++)
        assert_string_equal(fx_supported_devices()[i], order[i]);
    assert_null(fx_supported_devices()[5]);
}

/* After a failed fx_use all advice repeats the reason. */
static void advice_repeats_the_reason(void **state)
{
    (void)state;
    FX_SCOPE;
    messages = 0;
    fx_array *x = fx_ones(2);
    assert_ptr_equal(fx_gpu(x), x);
    assert_ptr_equal(fx_gpu(x), x);
    assert_int_equal(messages, 1); /* once */
    assert_int_equal(said_level, 0);
    starts(said, "The GPU functionality is being called but CUDA could not be loaded: " WHY);
    assert_non_null(strstr(said, "Defaulting back to the CPU."));
    assert_ptr_equal(fx_cu(x), x);
    assert_ptr_equal(fx_fmap(fx_cu, x), x);
    assert_int_equal(messages, 2);
    assert_int_equal(said_level, 1);
    starts(said, "fx_cu needs CUDA, so arrays are not moved: " WHY);
    assert_string_equal(chosen(), "CPU");
    assert_int_equal(said_level, 0);
    starts(said, "Using backend: CPU.\nCUDA could not be loaded: " WHY);
    messages = 2;
    fx_dense_layer *model = fx_dense(2, 3);
    assert_ptr_equal(fx_gpu(model), model);
    assert_true(fx_is_error(fx_gpu_strict(x)) && fx_is_error(fx_gpu_strict(model)));
    starts(fx_error_take().message,
           "gpu_strict: No functional GPU device found: CUDA could not be loaded: " WHY);
    char text[300];
    fx_show_text(fx_devices("CUDA"), text, sizeof text);
    assert_int_equal(strncmp(text, "no devices: it is not ", 22), 0);
    fx_show_text(fx_devices("Quantum"), text, sizeof text);
    assert_string_equal(text, "no devices: unknown backend");
    fx_show_text(fx_devices(NULL), text, sizeof text);
    assert_string_equal(text, "CPU\nref");
    assert_int_equal(messages, 2);
    fx_device_get("CUDA", 0);
    fx_error e = fx_error_take();
    assert_int_equal(e.status, FX_STATUS_DEVICE);
    starts(e.message, "device: Unavailable backend: CUDA: " WHY);
    assert_null(strstr(e.message, "fx_use"));
    fx_device_get("Quantum", 0);
    e = fx_error_take();
    assert_non_null(strstr(e.message, "Unsupported backend: Quantum. Supported backends are "
                                      "(\"CUDA\", \"AMDGPU\", \"Metal\", \"OpenCL\", \"CPU\")."));
}

/* Flux 0.14.23 and later read and write [MLDataDevices]. */
static void the_table_of_later_versions(void **state)
{
    (void)state;
    prefer("[MLDataDevices]\ngpu_backend = \"Metal\"\n");
    assert_string_equal(fx_gpu_backend(), "Metal");
    assert_int_equal(fx_gpu_backend_set("CUDA"), FX_OK);
    assert_file_is(file, "[MLDataDevices]\ngpu_backend = \"CUDA\"\n");
    /* both: the later versions' decides, and is the one that is written */
    prefer("[Flux]\ngpu_backend = \"AMDGPU\"\n[MLDataDevices]\ngpu_backend = \"CPU\"\n");
    assert_string_equal(fx_gpu_backend(), "CPU");
    assert_string_equal(fx_device_name(fx_get_device()), "CPU");
    assert_int_equal(fx_gpu_backend_set("CUDA"), FX_OK);
    assert_file_is(file, "[Flux]\ngpu_backend = \"AMDGPU\"\n"
                         "[MLDataDevices]\ngpu_backend = \"CUDA\"\n");
    /* the table without the key says nothing */
    prefer("[MLDataDevices]\nother = 1\n[Flux]\ngpu_backend = \"OpenCL\"\n");
    assert_string_equal(fx_gpu_backend(), "OpenCL");
    assert_int_equal(fx_gpu_backend_set("CPU"), FX_OK);
    assert_file_is(file, "[MLDataDevices]\nother = 1\n[Flux]\ngpu_backend = \"CPU\"\n");
    /* damage in the table that is looked at first */
    prefer("[MLDataDevices]\ngpu_backend = 1\n[Flux]\ngpu_backend = \"CPU\"\n");
    assert_string_equal(fx_gpu_backend(), "");
    assert_int_equal(fx_gpu_backend_set("CPU"), FX_STATUS_FORMAT);
    fx_error_take();
    assert_file_is(file, "[MLDataDevices]\ngpu_backend = 1\n[Flux]\ngpu_backend = \"CPU\"\n");
}

static void preferences_that_cannot_be_followed(void **state)
{
    (void)state;
    prefer("[Flux]\ngpu_backend = \"CUDA\"\n");
    assert_string_equal(fx_gpu_backend(), "CUDA");
    assert_string_equal(fx_device_name(fx_get_device()), "CPU");
    starts(said, "Trying to use backend: CUDA but it could not be loaded: " WHY);
    assert_int_equal(messages, 1);
    assert_true(fx_is_error(fx_gpu_strict(fx_ones(2))));
    assert_non_null(strstr(fx_error_take().message, "CUDA could not be loaded: " WHY));
    prefer("[Flux]\ngpu_backend = \"Metal\"\n"); /* it has not been requested yet */
    assert_string_equal(fx_device_name(fx_get_device()), "CPU");
    says(1, "Trying to use backend: Metal but it is not loaded.\nPlease call fx_use(\"Metal\") and "
            "this function again to respect the preferences backend.");
    assert_true(fx_is_error(fx_gpu_strict(fx_ones(2))));
    assert_non_null(
        strstr(fx_error_take().message,
               "Metal, the preferred backend, cannot be used: it is not loaded: fx_use"));
    prefer("[Flux]\ngpu_backend = \"Abacus\"\n");
    assert_string_equal(fx_device_name(fx_get_device()), "CPU");
    says(1, "`gpu_backend` preference is set to Abacus, which is not allowed.\nDefaulting to "
            "automatic device selection.");
    messages = 0;
    fx_get_device();
    assert_int_equal(messages, 0); /* once */
    prefer("[Flux]\ngpu_backend = CUDA\n");
    assert_string_equal(fx_device_name(fx_get_device()), "CPU");
    assert_int_equal(said_level, 1);
    assert_non_null(strstr(said, "LocalPreferences.toml, line 2: "));
    assert_int_equal(fx_gpu_backend_set("CUDA"), FX_STATUS_FORMAT);
    const fx_error e = fx_error_take();
    assert_non_null(strstr(e.message, "line 2"));
    assert_file_is(file, "[Flux]\ngpu_backend = CUDA\n"); /* the file is unchanged */
#ifndef _WIN32 /* which opens no folder, so that it counts as absent */
    /* what cannot be read is not replaced either */
    assert_int_equal(remove(file), 0);
    assert_int_equal(mkdir(file, 0700), 0);
    fxi_preferences_reset();
    assert_string_equal(fx_device_name(fx_get_device()), "CPU");
    assert_non_null(strstr(said, "LocalPreferences.toml cannot be read ("));
    assert_int_not_equal(fx_gpu_backend_set("CUDA"), FX_OK);
    fx_error_take();
    assert_int_equal(rmdir(file), 0);
#endif
}

/* ---- setting it ------------------------------------------------------------------------------ */

static void setting_the_preference(void **state)
{
    (void)state;
    prefer("# mine\n[Other]\nx = 1\n");
    assert_int_equal(chmod(file, 0640), 0);
    assert_int_equal(fx_gpu_backend_set("AMDGPU"), FX_OK);
    says(0, "New GPU backend set: AMDGPU.\nRestart your program for this change to take effect!");
    assert_file_is(file, "# mine\n[Other]\nx = 1\n\n[Flux]\ngpu_backend = \"AMDGPU\"\n");
    assert_string_equal(fx_gpu_backend(), ""); /* the program keeps its own */
#ifndef _WIN32                                 /* a new file inherits the rights of its folder */
    struct stat st;
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
#endif
    fxi_preferences_reset(); /* as after a restart */
    assert_string_equal(fx_gpu_backend(), "AMDGPU");
    assert_int_equal(fx_gpu_backend_set("AMDGPU"), FX_OK);
    says(0, "GPU backend is already set to: AMDGPU.\nNo need to do anything else.");
    assert_int_equal(fx_gpu_backend_set("CPU"), FX_OK);
    assert_file_is(file, "# mine\n[Other]\nx = 1\n\n[Flux]\ngpu_backend = \"CPU\"\n");
    assert_int_equal(fx_gpu_backend_set("Abacus"), FX_STATUS_ARGUMENT);
    const fx_error e = fx_error_take();
    assert_non_null(strstr(e.message, "Unsupported GPU backend: Abacus. Supported backends are: "
                                      "(\"CUDA\", \"AMDGPU\", \"Metal\", \"OpenCL\", \"CPU\")."));
    assert_int_equal(fx_gpu_backend_set(NULL), FX_STATUS_ARGUMENT);
    fx_error_take();
    prefer(NULL); /* without a file, the call makes one */
    assert_int_equal(fx_gpu_backend_set("Metal"), FX_OK);
    assert_file_is(file, "[Flux]\ngpu_backend = \"Metal\"\n");
    char other[300];
    snprintf(other, sizeof other, "%s/JuliaLocalPreferences.toml", project);
    FILE *f = fopen(other, "wb"); /* goes before, as in Preferences.jl */
    assert_non_null(f);
    fputs("Flux.gpu_backend = \"CPU\"\n", f);
    fclose(f);
    fxi_preferences_reset();
    assert_string_equal(fx_gpu_backend(), "CPU");
    unlink(other);
    setenv("CFLUX_PROJECT", "/nonexistent/folder", 1);
    fxi_preferences_reset();
    assert_int_equal(fx_gpu_backend_set("CUDA"), FX_STATUS_IO);
    fx_error_take();
    setenv("CFLUX_PROJECT", project, 1);
}

/* Any key of the table Flux. */
static void other_preferences(void **state)
{
    (void)state;
    char text[300];
    prefer("[MLDataDevices]\nsize = 1\n[Flux]\ngpu_backend = 'CUDA'\nFluxDistributedMPICUDAAware = "
           "true\n"
           "note = \"a b\"\nlist = [1]\nodd = \"yes\"\n");
    assert_string_equal(fx_preference("FluxDistributedMPICUDAAware"), "true");
    assert_true(fxi_preference_is_true("FluxDistributedMPICUDAAware"));
    assert_string_equal(fx_preference("note"), "a b");
    assert_string_equal(fx_preference("size"), ""); /* it is in another table */
    assert_string_equal(fx_preference("gpu_backend"), "CUDA");
    assert_false(fxi_preference_is_true("absent"));
    assert_int_equal(messages, 0);
    assert_string_equal(fx_preference("list"), "");
    assert_int_equal(said_level, 1);
    assert_non_null(strstr(said,
                           "LocalPreferences.toml, line 7: list: the value is not a string, a "
                           "number, true or false. This preference is ignored."));
    assert_false(fxi_preference_is_true("odd"));
    says(1, "The preference odd is \"yes\", expected true or false. It counts as false.");
    /* a value of another kind: only this key is ignored, and each such key has its own message */
    prefer("[Flux]\ngpu_backend = 1\nlist = [1]\nnote = \"a b\"\n");
    assert_string_equal(fx_preference("gpu_backend"), "");
    assert_non_null(strstr(said, "LocalPreferences.toml, line 2: gpu_backend: the value is not a "
                                 "string. This preference is ignored."));
    assert_string_equal(fx_preference("list"), "");
    assert_non_null(strstr(said, "line 3: list: the value is not a string, a number, true or "
                                 "false. This preference is ignored."));
    assert_string_equal(fx_preference("note"), "a b");
    assert_int_equal(messages, 2);
    /* a file that is not TOML: one message for all keys */
    prefer("[Flux]\nnote = \"a b\"\nlist = 1 2\n");
    assert_string_equal(fx_preference("note"), "");
    assert_non_null(strstr(said, "LocalPreferences.toml, line 3: "));
    assert_non_null(strstr(said, " Preferences are ignored."));
    assert_string_equal(fx_preference("list"), "");
    assert_int_equal(messages, 1);
    /* written: words without quotes, texts with them; in this process the old value stays */
    prefer("[Flux]\nFluxDistributedMPICUDAAware = true\n");
    const char *const before = fx_preference("FluxDistributedMPICUDAAware");
    assert_int_equal(fx_preference_set("FluxDistributedMPICUDAAware", "false"), FX_OK);
    assert_int_equal(fx_preference_set("note", "c, d"), FX_OK);
    assert_file_is(file, "[Flux]\nnote = \"c, d\"\nFluxDistributedMPICUDAAware = false\n");
    assert_string_equal(before, "true");
    assert_string_equal(fx_preference("FluxDistributedMPICUDAAware"), "true");
    fxi_preferences_reset();
    assert_string_equal(fx_preference("FluxDistributedMPICUDAAware"), "false");
    assert_false(fxi_preference_is_true("FluxDistributedMPICUDAAware"));
    /* refused */
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    const char *const values[] = {NULL, "a\"b", "a\\b", "a\nb", text, "\xff", "\xc3"};
    for (int i = 0; i < 7; i++) {
        assert_int_equal(fx_preference_set("note", values[i]), FX_STATUS_ARGUMENT);
        assert_non_null(
            strstr(fx_error_take().message, "the value of note must be a UTF-8 text of"));
    }
    char name[65];
    memset(name, 'x', 64);
    name[64] = 0;
    const char *const names[] = {"true", "", "Abacus", name};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(fx_preference_set("gpu_backend", names[i]), FX_STATUS_ARGUMENT);
        assert_non_null(strstr(fx_error_take().message, "gpu_backend must be one of (\"CUDA\", "));
    }
    assert_int_equal(fx_preference_set("gpu_backend", "Metal"), FX_OK);
    fxi_preferences_reset();
    assert_string_equal(fx_gpu_backend(), "Metal");
    prefer("[Flux]\n[Flux.X]\ny = 1\n");
    assert_int_equal(fx_preference_set("X", "v"), FX_STATUS_FORMAT);
    assert_non_null(strstr(fx_error_take().message, "line 2: the key is a table; the file is"));
    assert_file_is(file, "[Flux]\n[Flux.X]\ny = 1\n");
    const char *const keys[] = {NULL, "", "a b", "a.b", text};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(fx_preference_set(keys[i], "x"), FX_STATUS_ARGUMENT);
        assert_non_null(
            strstr(fx_error_take().message, "preference_set: a key has 1 to 63 letters"));
        assert_string_equal(fx_preference(keys[i]), "");
        assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
    }
    text[197] = 0;
    assert_int_equal(fx_preference_set("note", text), FX_OK);
    fxi_preferences_reset();
    assert_string_equal(fx_preference("note"), text);
}

/* ---- with backends --------------------------------------------------------------------------- */

static void order_of_choice(void **state)
{
    (void)state;
    FX_SCOPE;
    prefer(NULL);
    add_fake(0, "Metal", 1, NULL);
    assert_string_equal(chosen(), "Metal:0");
    says(0, "Using backend: Metal.");
    add_fake(1, "CUDA", 0, "the driver is too old");
    assert_string_equal(chosen(), "Metal:0"); /* CUDA is installed but does not work */
    assert_string_equal(fx_why_not("CUDA"), "the driver is too old");
    assert_false(fx_functional("CUDA"));
    add_fake(2, "AMDGPU", 3, NULL);
    assert_string_equal(chosen(), "AMDGPU:0");
    prefer("[Flux]\ngpu_backend = \"Metal\"\n");
    assert_string_equal(chosen(), "Metal:0");
    says(0, "Using backend set in preferences: Metal.");
    assert_int_equal(messages, 1);
    prefer("[Flux]\ngpu_backend = \"AMD\"\n"); /* its name in older projects */
    assert_string_equal(fx_device_name(fx_get_device()), "AMDGPU:0");
    says(1, "\"AMD\" backend is deprecated. Please use \"AMDGPU\" instead.");
    assert_string_equal(fx_device_name(fx_gpu_device()), "AMDGPU:0");
    assert_int_equal(messages, 1); /* once */
    prefer("[Flux]\ngpu_backend = \"CUDA\"\n");
    assert_string_equal(fx_device_name(fx_get_device()), "AMDGPU:0");
    says(1, "Backend: CUDA from the set preferences is not functional: the driver is too old.\n"
            "Defaulting to automatic device selection.");
    messages = 0;
    assert_string_equal(fx_device_name(fx_gpu_device()), "AMDGPU:0"); /* this name works as well */
    assert_int_equal(messages, 1);
    assert_string_equal(fx_device_name(fx_array_device(fx_gpu(fx_ones(2)))), "AMDGPU:0");
    assert_int_equal(messages, 1); /* once */
    says(1, "Backend: CUDA from the set preferences is not functional: the driver is too old.\n"
            "Defaulting to automatic device selection.");
    prefer("[Flux]\ngpu_backend = \"CPU\"\n");
    assert_string_equal(fx_device_name(fx_get_device()), "CPU");
    fx_array *x = fx_ones(2);
    messages = 0;
    assert_ptr_equal(fx_gpu(x), x); /* gpu acts as cpu */
    fx_array *away = fx_to(fx_device_get("Metal", 0), x);
    assert_ptr_equal(fx_array_device(fx_gpu(away)), fx_cpu_device());
    assert_int_equal(messages, 0);
    assert_true(fx_is_error(fx_gpu_strict(x)));
    assert_non_null(strstr(fx_error_take().message, "the CPU is the preferred backend"));
    prefer("[Flux]\ngpu_backend = \"AMDGPU\"\n");
    assert_string_equal(fx_device_name(fx_array_device(fx_gpu_strict(x))), "AMDGPU:0");
}

static void devices_by_number(void **state)
{
    (void)state;
    prefer(NULL);
    assert_int_equal(fx_device_count("AMDGPU"), 3);
    assert_int_equal(fx_device_count("CUDA"), 0);
    fx_device *d = fx_device_get("AMDGPU", 2);
    assert_string_equal(fx_device_name(d), "AMDGPU:2");
    assert_int_equal(fx_device_id(d), 2);
    assert_ptr_equal(fx_device_get("AMDGPU", 3), fx_cpu_device());
    fx_error e = fx_error_take();
    assert_non_null(strstr(e.message, "AMDGPU has 3 devices, so there is no id 3"));
    fx_device_get("AMDGPU", -1);
    e = fx_error_take();
    assert_non_null(strstr(e.message, "there is no id -1"));
    fx_device_get("CUDA", 0);
    e = fx_error_take();
    assert_non_null(strstr(e.message, "Unavailable backend: CUDA: the driver is too old."));
    char text[100];
    fx_summary(d, text, sizeof text);
    assert_string_equal(text, "AMDGPU device 2");
}

static void moving_to_the_gpu(void **state)
{
    (void)state;
    FX_SCOPE;
    prefer("[Flux]\ngpu_backend = \"AMDGPU\"\n");
    fx_array *wide = fx_full_dtype(FX_DTYPE_F64, 0.5, 2), *half = fx_full_dtype(FX_DTYPE_F16, 1, 2),
             *index = fxi_full(FX_DTYPE_I64, 3, 1, (const int64_t[]){1});
    fx_array *moved = fx_gpu(wide);
    assert_string_equal(fx_device_name(fx_array_device(moved)), "AMDGPU:0");
    assert_int_equal(fx_eltype(moved), FX_DTYPE_F32);
    assert_int_equal(fx_eltype(fx_cu(half)), FX_DTYPE_F16);
    assert_int_equal(fx_eltype(fx_gpu(index)), FX_DTYPE_I64);
    assert_int_equal(fx_eltype(fx_cpu(moved)), FX_DTYPE_F32); /* never back */
    assert_int_equal(fx_eltype(fx_to(fx_device_get("AMDGPU", 1), wide)), FX_DTYPE_F64);
    assert_ptr_equal(fx_gpu(moved), moved);
    fx_array *second = fx_to(fx_device_get("AMDGPU", 1), moved);
    assert_string_equal(fx_device_name(fx_array_device(second)), "AMDGPU:1");
    assert_int_equal(fx_item(fx_sum(second)), 1);
    fx_chain_layer *m = fx_gpu(fx_chain(fx_dense(2, 3), fx_batchnorm(3)));
    fx_dense_layer *d = fx_child(m, 0);
    assert_string_equal(fx_device_name(fx_array_device(d->weight)), "AMDGPU:0");
    void *opt = fx_setup(fx_adam(), m);
    {
        FX_STEP;
        fx_array *loss = fx_mean(fx_call(m, fx_gpu(fx_ones(2, 4))));
        assert_int_equal(fx_update(opt, m, fx_gradient(loss, m)), FX_OK);
    }
    assert_string_equal(fx_device_name(fx_array_device(d->weight)), "AMDGPU:0");
    void *here = fx_cpu(opt);
    assert_ptr_not_equal(here, opt); /* its moments were where the weights are */
    fx_array *bad = fx_add(moved, second);
    assert_true(fx_is_error(bad));
    const fx_error e = fx_error_take();
    assert_int_equal(e.status, FX_STATUS_DEVICE);
    assert_non_null(strstr(e.message, "AMDGPU:0"));
    assert_non_null(strstr(e.message, "AMDGPU:1"));
}

/* Devices of a backend that says why it does not work are listed and not used. */
static void devices_that_are_only_listed(void **state)
{
    (void)state;
    static fx_backend listed;
    listed = fxi_cpu_backend;
    listed.head.name = "Listed";
    assert_int_equal(fxi_backend_register(&listed, 2, "it has no compiler"), FX_OK);
    assert_false(fx_functional("Listed"));
    assert_int_equal(fx_device_count("Listed"), 0);
    assert_string_equal(fx_why_not("Listed"), "it has no compiler");
    fx_device_get("Listed", 0);
    assert_string_equal(fx_error_take().message,
                        "device: Unavailable backend: Listed: it has no compiler.");
}

/* The numbers of devices that a backend may have, and the number of backends. Fills the
 * registry. */
static void limits_of_the_registry(void **state)
{
    (void)state;
    static fx_backend more[FXI_BACKENDS_MOST];
    static char names[FXI_BACKENDS_MOST][16];
    static const int refused[] = {-1, FXI_DEVICES_MOST + 1};
    int n = 0;
    for (; n < FXI_BACKENDS_MOST; n++) {
        more[n] = fxi_cpu_backend;
        snprintf(names[n], sizeof names[n], "Extra%d", n);
        more[n].head.name = names[n];
        for (int i = 0; i < 2; i++) {
            assert_int_equal(fxi_backend_register(&more[n], refused[i], NULL), FX_STATUS_ARGUMENT);
            fx_error_take();
        }
        const char *why = n % 2 ? "none" : "";
        if (fxi_backend_register(&more[n], n % 2 ? 0 : FXI_DEVICES_MOST, why) != FX_OK)
            break;
        assert_int_equal(fx_device_count(names[n]), n % 2 ? 0 : FXI_DEVICES_MOST);
        assert_string_equal(fx_why_not(names[n]), why);
    }
    /* Six names are known from the start, and the test before this one adds "Listed". */
    assert_int_equal(n, FXI_BACKENDS_MOST - 7);
    char wanted[640];
    snprintf(wanted, sizeof wanted, "use: %s cannot be registered: there are already %d backends",
             names[n], FXI_BACKENDS_MOST);
    assert_string_equal(fx_error_take().message, wanted);
    assert_null(fxi_registered_find(names[n]));
    assert_int_equal(fx_device_count(names[(n - 1) / 2 * 2]), FXI_DEVICES_MOST);
    assert_int_equal(fxi_backend_register(NULL, 1, NULL), FX_STATUS_ARGUMENT);
    fx_error_take();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_loaded),
        cmocka_unit_test(advice_repeats_the_reason),
        cmocka_unit_test(the_table_of_later_versions),
        cmocka_unit_test(preferences_that_cannot_be_followed),
        cmocka_unit_test(setting_the_preference),
        cmocka_unit_test(other_preferences),
        cmocka_unit_test(order_of_choice),
        cmocka_unit_test(devices_by_number),
        cmocka_unit_test(moving_to_the_gpu),
        cmocka_unit_test(devices_that_are_only_listed),
        cmocka_unit_test(limits_of_the_registry),
    };
    snprintf(file, sizeof file, "%s", temp_text("LocalPreferences.toml", ""));
    snprintf(project, sizeof project, "%.*s", (int)(strrchr(file, '/') - file), file);
    setenv("CFLUX_PROJECT", project, 1);
    fx_message_set_hook(listen, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
