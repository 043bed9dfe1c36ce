#!/usr/bin/env python3
"""Every checker finds the mistakes that it exists for: each is given a small tree with one known fault in it."""
import contextlib
import io
import os
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "docs"))
sys.path.insert(0, os.path.join(HERE, "..", "perf"))
import check_calls  # noqa: E402
import check_comments  # noqa: E402
import check_docs  # noqa: E402
import check_pages  # noqa: E402
import check_exports  # noqa: E402
import check_flux_names  # noqa: E402
import check_headers  # noqa: E402
import check_messages  # noqa: E402
import check_names  # noqa: E402
import check_phrases  # noqa: E402
import check_reference  # noqa: E402
import check_store_forwarding  # noqa: E402
import check_systems  # noqa: E402
import check_tree  # noqa: E402
import check_walk  # noqa: E402


class Scratch(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = self.folder.name
        self.errors = []

    def tearDown(self):
        self.folder.cleanup()

    def put(self, path, text):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as f:
            f.write(text)


class Systems(Scratch):
    """A function that one system lacks, and a use of what ISO C does not have."""

    def undefined(self, header, **files):
        self.put("tools/cflux/system.h", "")
        self.put("src/platform/clock.h", header)
        for kind, text in files.items():
            self.put(f"src/platform/clock_{kind}.c", text)
        return check_systems.undefined(self.root)[0]

    def test_every_system_defines_it(self):
        header = "/* int old(void); */\nint64_t fxi_now(void);\nstatic inline int two(void)\n{\n    return one();\n}\n"
        source = "int64_t fxi_now(void)\n{\n    return 1;\n}\n"
        self.assertEqual(self.undefined(header, posix=source, windows=source), [])
        self.assertEqual(self.undefined(header, posix=source, windows="static " + source),
                         ["src/platform/clock.h: no file defines fxi_now for windows"])
        self.assertEqual(self.undefined(header, posix="", linux=source, windows=source),
                         ["src/platform/clock.h: no file defines fxi_now for darwin"])

    def test_names_of_iso_c(self):
        names = check_systems.iso_names()
        self.assertTrue({"qsort", "snprintf", "fmin", "longjmp", "memchr"} <= names)
        self.assertFalse({"strdup", "fileno", "getline", "asprintf", "strcasecmp", "localtime_r"} & names)

    def test_functions_of_one_system(self):
        files = {"src/base/a.c": ({"fxi_a"}, {"strlen", "strdup", "fxi_b", "crc32_z"}), "src/base/b.c": ({"fxi_b"}, set()),
                 "src/platform/c_posix.c": (set(), {"strdup"}), "src/dist/mpi/mpi.c": (set(), {"MPI_Send"})}
        self.assertEqual(check_systems.foreign(files, {"strlen"})[0],
                         ["src/base/a.c: strdup is not a function of ISO C: a file for each system must call it"])

    def test_truths(self):
        good = "bool a = isnan(x), b = !isnan(x) == !isnan(y) && isinf(f(g(x)));\nint c = (isnan(x) != 0) - (isnan(y) != 0) || isnan(x);\n"
        self.put("src/a.c", good)
        self.assertEqual(check_systems.truths(self.root), ([], 5))
        for bad in ("n += isnan(x)", "k = isnan(f(x)) - 1", "b = a == isnan(x)", "b = signbit(x) == signbit(y)", "b = c | isnan(x)"):
            self.put("src/a.c", bad + ";\n")
            self.assertTrue(check_systems.truths(self.root)[0], bad)


class ThreadLocal(unittest.TestCase):
    """Lines of readelf -rW as bfd and gold write them, x86-64 and 64-bit ARM."""
    GOOD = [f"0000000000250e{k}0  0000000000000012 R_X86_64_TPOFF64                          {k}0" for k in range(4)]

    def errors(self, *lines):
        return check_exports.thread_local_errors("\n".join([*self.GOOD, *lines]))

    def test_addresses_of_their_own(self):
        self.assertEqual(self.errors("0000000000252f98  0000019300000012 R_X86_64_TPOFF64  00000000000000c8 fxi_call_site@@V + 0"), [])
        self.assertEqual(self.errors("000000021ff8  000100000406 R_AARCH64_TLS_TPREL64 00000000000000d0 mine + 0"), [])

    def test_another_model(self):
        for kind in ("R_X86_64_DTPMOD64", "R_X86_64_DTPOFF64", "R_AARCH64_TLSDESC", "R_AARCH64_TLS_DTPMOD64"):
            self.assertIn("another model", self.errors(f"252f40  000100000010 {kind}  00000000000000a0 mine + 0")[0])

    def test_the_same_address(self):
        self.assertIn("of another", self.errors("252f90  000200000012 R_X86_64_TPOFF64  0000000000000000 <null> + 0")[0])
        self.assertIn("of another", self.errors("252f90  000200000012 R_X86_64_TPOFF64  0000000000000020 mine + 0")[0])

    def test_too_few(self):
        self.assertIn("expected at least", check_exports.thread_local_errors(self.GOOD[0])[0])

    def test_the_size(self):
        """Lines of readelf -lW."""
        line = "  TLS            0x3ade60 0x00000000003ade60 0x00000000003ade60 0x000000 0x{:06x} R   0x10"
        self.assertEqual(check_exports.thread_local_size_errors(line.format(944)), [])
        self.assertIn("take 5024 bytes", check_exports.thread_local_size_errors(line.format(5024))[0])
        self.assertIn("take 0 bytes", check_exports.thread_local_size_errors("  LOAD 0x0 0x0 0x0 0x1 0x1 R 0x10")[0])

    def test_the_plugin_interface(self):
        headers = ["enum { FX_PLUGIN_ABI = 3 }; /* a comment */", "struct { uint8_t a; };"]
        accepted = check_exports.interface_errors(headers, "")[0].split(" is now ")[1].split(".")[0]
        self.assertEqual(check_exports.interface_errors([headers[0].replace("a comment", "another"), headers[1]], accepted), [])
        padded = check_exports.interface_errors([headers[0], "struct { uint8_t a, b; };"], accepted)
        self.assertIn("increase FX_PLUGIN_ABI", padded[0])


class StoreForwarding(unittest.TestCase):
    """Lines of objdump -d: a vector is loaded from the stack."""
    ENOUGH = ["100 <many>:", *[" 101:\tvaddps 0x40(%rsp),%ymm1,%ymm2"] * check_store_forwarding.LEAST_LOADS]

    def errors(self, *instructions):
        body = [line for _ in range(3) for line in instructions]
        return check_store_forwarding.errors("\n".join([*self.ENOUGH, "200 <kernel>:", *[f" 201:\t{i}" for i in body]]))[0]

    def test_the_same_width(self):
        self.assertEqual(self.errors("vmovaps %ymm0,0x20(%rsp)", "vaddps 0x20(%rsp),%ymm1,%ymm2"), [])
        self.assertEqual(self.errors("vmovaps %xmm0,0x20(%rsp)", "vaddps 0x20(%rsp),%xmm1,%xmm2"), [])
        self.assertEqual(self.errors("vmovaps %xmm0,0x20(%rsp)", "vcvtps2pd 0x20(%rsp),%ymm2"), [])

    def test_wider_than_the_stores(self):
        halves = ("vmovdqa %xmm0,(%rsp)", "vmovdqa %xmm1,0x10(%rsp)")
        for load in ("vmovaps (%rsp),%ymm3", "vaddps (%rsp),%ymm1,%ymm3"):
            self.assertIn("kernel has 3 such loads", self.errors(*halves, load)[0])
        self.assertEqual(self.errors(halves[0], "vmovaps (%rsp),%ymm3"), [])  # the other half is older

    def test_a_store_long_ago(self):
        halves = ("vmovdqa %xmm0,(%rsp)", "vmovdqa %xmm1,0x10(%rsp)")
        self.assertEqual(self.errors(*halves, *["nop"] * check_store_forwarding.NEAR, "vmovaps (%rsp),%ymm3"), [])

    def test_too_few(self):
        self.assertIn("expected at least", check_store_forwarding.errors("")[0][0])


class Tree(Scratch):
    def includes(self, path, header, exceptions=None):
        for folder, name in (("base", "memory.h"), ("value", "node.h"), ("plan", "plan.h"), ("backends", "step.h"),
                             ("backends/ref", "ref_kernels.h"), ("backends/cpu", "cpu_kernels.h"),
                             ("backends/gpu", "gpu.h")):
            self.put(f"src/{folder}/{name}", "/* */\n")
        self.put(path, f'#include "{header}"\n')
        self.errors = []
        check_tree.check_includes(self.root, self.errors, exceptions or {})
        return self.errors

    def test_direction(self):
        self.assertEqual(self.includes("src/plan/a.c", "node.h"), [])
        self.assertEqual(self.includes("src/backends/cpu/a.c", "step.h"), [])
        self.assertEqual(self.includes("src/nn/a.c", "memory.h"), [])

    def test_layers_have_no_names_outside_nn(self):
        self.put("src/nn/layers.def", "".join(f"LAYER({n})\n" for n in "dense conv maxpool a b c d e".split()))
        for text, wrong in (("int f(void) { return fxi_dense(0); }", 1), ('static const char n[] = "Dense";', 1),
                            ('static const char n[] = "Flux.Conv";', 1), ("fx_conv_args x;", 1),
                            ("/* Dense */ int fx_density; fx_convolve(x); \"maxpool\";", 0)):
            self.put("src/io/a.c", text)
            self.errors = []
            check_tree.LAYER_NAMES, kept = {}, check_tree.LAYER_NAMES
            self.assertEqual(check_tree.check_layers(self.root, self.errors), 1)
            check_tree.LAYER_NAMES = kept
            self.assertEqual(len(self.errors), wrong, text)

    def test_wrong_direction(self):
        self.assertIn("may not include", self.includes("src/value/a.c", "plan.h")[0])

    def test_exec_includes_plans(self):
        self.assertEqual(self.includes("src/exec/a.c", "plan.h"), [])

    def test_layers_above_see_the_public_headers_only(self):
        self.assertIn("may not include", self.includes("src/nn/a.c", "node.h")[0])

    def test_backends_do_not_know_each_other(self):
        self.assertIn("may not include", self.includes("src/backends/cpu/a.c", "ref_kernels.h")[0])

    def test_programs_that_start_themselves(self):
        run = 'n = readlink("/proc/self/exe", self, 9);\nFILE *f = popen(self, "r");\n'
        for text, wrong in ((run, 1), ("/* a.c. ctest: threads native */\n" + run, 0), ("int n = system(argv[0]);", 1),
                            ('popen("python3", "r");', 0), ('readlink("/proc/self/exe", p, 9);', 0)):
            self.put("tests/unit/test_a.c", text)
            self.errors = []
            self.assertEqual(check_tree.check_own_children(self.root, self.errors), 1)
            self.assertEqual(len(self.errors), wrong, text)

    def test_programs_on_simulated_drivers(self):
        row = 'run("SIM_DEVICES=0");\n'
        for text, wrong in ((row, 1), ("/* a.c ctest: native */\n" + row, 1), ("/* a.c ctest: threads\n * simulated */\n" + row, 0),
                            ("int sim;\n", 0)):
            self.put("tests/unit/test_a.c", text)
            self.errors = []
            check_tree.check_simulated(self.root, self.errors)
            self.assertEqual(len(self.errors), wrong, text)

    def test_numbers_have_a_point_in_every_locale(self):
        for folder, text, wrong in (("nn", 'snprintf(t, n, "%.3g;", x);', 1), ("nn", 'snprintf(t, n, "; %g", x);', 1),
                                    ("nn", 'snprintf(t, n, "%d %.0f %%g", x);', 0), ("nn", "vsnprintf(t, n, f, a);", 1),
                                    ("nn", 'fxi_snprintf(t, n, "%g", x);', 0), ("plan", "vsnprintf(t, n, f, a);", 0),
                                    ("plan", 'say(t, "%.3f", x);', 1), ("plan", "int a = b % f;", 0)):
            self.put(f"src/{folder}/a.c", text)
            self.errors = []
            check_tree.check_locale(self.root, self.errors)
            self.assertEqual(len(self.errors), wrong, text)
            self.put(f"src/{folder}/a.c", "")

    def test_systems_differ_in_one_room(self):
        self.put("src/platform/a.c", "/* */\n#include <dlfcn.h>\n#include <sys/stat.h>\nint f = fileno(x);\n")
        self.put("src/base/b.c", "/* fileno(x) */\n#include <stdio.h>\n#include <zlib.h>\nint f = a.fileno(x);\n")
        check_tree.check_system(self.root, self.errors)
        self.assertEqual(self.errors, [])

    def test_no_room_but_platform_uses_a_system(self):
        for name in ("dlfcn.h", "pthread.h", "sys/stat.h", "time.h", "signal.h", "unistd.h", "windows.h"):
            self.errors.clear()
            self.put("src/backends/opencl/c.c", f"/* */\n#include <{name}>\n")
            check_tree.check_system(self.root, self.errors)
            self.assertEqual(self.errors, [f"src/backends/opencl/c.c: only src/platform/ includes <{name}>"])
        for use in ("fileno(x)", "pthread_self()", "(off_t)1", "strtod_l (a, b, c)", "fopen(a, b)", "format(printf, 1, 2)"):
            self.errors.clear()
            self.put("src/backends/opencl/c.c", f"/* */\nint x = {use};\n")
            check_tree.check_system(self.root, self.errors)
            self.assertEqual(len(self.errors), 1, use)
            self.assertIn("src/backends/opencl/c.c:2: only src/platform/ uses ", self.errors[0])

    def test_the_command_line_asks_the_system_in_one_file(self):
        self.put("tools/cflux/system_linux.c", "/* */\n#include <unistd.h>\n")
        self.put("tools/cflux/a.c", "/* */\n#include <getopt.h>\n#include <cflux.h>\n#include <cflux/io.h>\n")
        check_tree.check_tools(self.root, self.errors)
        self.assertEqual(self.errors, [])
        self.put("tools/cflux/b.c", "/* */\n#include <termios.h>\n")
        check_tree.check_tools(self.root, self.errors)
        self.assertEqual(self.errors, ["tools/cflux/b.c: only system_*.c include <termios.h>"])
        self.errors.clear()
        self.put("tools/cflux/b.c", "/* */\nFILE *f = fopen(path, mode);\nFILE *g = open_file(path, mode);\n")
        check_tree.check_tools(self.root, self.errors)
        self.assertEqual(self.errors, ["tools/cflux/b.c:2: only system_*.c use fopen"])

    def test_a_hop_of_the_walk_is_named(self):
        known = {source: {"f"} for source in check_walk.KNOWN}
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(check_walk.judge({**known, "src/value/node.c": {"g"}}), [])
            self.assertIn("what does a reader learn there?", check_walk.judge({**known, "src/exec/hop.c": {"g"}})[0])
            del known["src/plan/graph.c"]
            self.assertEqual(check_walk.judge(known), ["src/plan/graph.c is not on the walk any more: remove its row"])
            services = {f"src/base/{k}.c": {"g"} for k in range(check_walk.MOST_SERVICES + 1)}
            self.assertIn("at most", check_walk.judge(services)[-1])

    def test_costs_of_calls_are_not_counted_twice(self):
        lines = ["ob=/b/program", "fn=f", "0x10 0 5", "calls=1 0x90 0", "0x14 0 700", "0x18 0 2", "ob=/lib/libc.so",
                 "fn=g", "0x10 0 9"]
        self.assertEqual(check_walk.read_costs(lines, "program"), {0x10: 5, 0x18: 2})

    def test_backends_share_the_machinery_of_gpus(self):
        self.assertEqual(self.includes("src/backends/cpu/a.c", "gpu.h"), [])
        self.assertIn("may not include", self.includes("src/backends/gpu/a.c", "cpu_kernels.h")[0])

    def test_unknown_header_and_folder(self):
        self.assertIn("not a file of src/", self.includes("src/plan/a.c", "nothing.h")[0])
        self.assertIn("not in the list", self.includes("src/misc/b.c", "memory.h")[0])

    def test_exceptions(self):
        table = {("nn", "node.h"): "for the test"}
        self.assertEqual(self.includes("src/nn/a.c", "node.h", table), [])
        self.assertIn("not needed", self.includes("src/nn/a.c", "memory.h", table)[0])

    def calls_of(self, files):
        return check_calls.check({source: (set(d.split()), set(u.split())) for source, (d, u) in files.items()},
                                 self.root)

    def test_calls_between_folders(self):
        good = {"src/base/a.c": ("low", "strlen"), "src/plan/b.c": ("middle", "low"),
                "src/value/n.c": ("node", "low fxi_the_evaluator"), "src/ops/o.c": ("", "fxi_the_evaluator"),
                "src/exec/c.c": ("high fxi_the_evaluator", "middle low"),
                "src/backends/common.c": ("shared", "low"), "src/backends/cpu/k.c": ("kernel", "shared"),
                "src/backends/gpu/g.c": ("gpu", ""), "src/backends/opencl/o.c": ("", "gpu")}
        errors, calls = self.calls_of(good)
        self.assertEqual((errors, calls), ([], 9))
        for source, used in (("src/base/a.c", "middle"), ("src/plan/b.c", "high"), ("src/plan/b.c", "fxi_the_evaluator"),
                             ("src/backends/common.c", "kernel"), ("src/backends/opencl/o.c", "low"),
                             ("src/backends/gpu/g.c", "kernel"), ("src/device/d.c", "node high")):
            defined, before = good.get(source, ("", ""))
            errors, _ = self.calls_of({**good, source: (defined, before + " " + used)})
            self.assertEqual(len(errors), 1, (source, used, errors))
            self.assertIn(used.split()[-1], errors[0])

    def test_an_exception_that_is_not_needed(self):
        errors, _ = self.calls_of({"src/exec/c.c": ("fxi_the_evaluator", "")})
        self.assertEqual(len(errors), 2)

    def test_same_name(self):
        self.put("src/base/a.h", "/* */\n")
        self.put("tests/unit/a.h", "/* */\n")
        check_tree.check_names(self.root, self.errors)
        self.assertEqual(len(self.errors), 1)

    def calls(self, code):
        self.put("src/base/a.c", code)
        self.errors = []
        check_tree.check_calls(self.root, self.errors)
        return len(self.errors)

    def test_calls(self):
        for bad in ("exit(1);", "abort ();", 'printf("x");', "p = malloc(1);", "fprintf(stdout, f);",
                    "fputs(s, stdout);", "free(p);", "assert(x);"):
            self.assertEqual(self.calls(bad), 1, bad)
        for good in ("fxi_free(p);", "b->free(p);", "snprintf(d, n, f);", "/* exit(1) */", "// abort()",
                     's = "printf(1)";', "fprintf(out, f);", "fx_exit(1);", "fx_show_to(stdout, x);"):
            self.assertEqual(self.calls(good), 0, good)

    def test_what_the_planner_may_not_do(self):
        for code in ('getenv("X");', "b = d->backend->views;", 'fx_message(0, "x");'):
            for room, count in (("plan", 1), ("exec", 0)):
                self.put(f"src/{room}/a.c", code)
                self.errors = []
                check_tree.check_calls(self.root, self.errors)
                self.assertEqual(len(self.errors), count, (room, code))
                os.remove(os.path.join(self.root, f"src/{room}/a.c"))

    def test_a_script_that_cannot_be_executed(self):
        self.put("bench/run.py", "#!/usr/bin/env python3\n")
        self.put("bench/part.py", '"""Imported only."""\n')
        self.assertEqual(check_tree.check_scripts(self.root, self.errors), 1)
        self.assertIn("bench/run.py: begins with #!", self.errors[0])
        os.chmod(os.path.join(self.root, "bench/run.py"), 0o755)
        self.errors.clear()
        check_tree.check_scripts(self.root, self.errors)
        self.assertEqual(self.errors, [])

    def test_places(self):
        home = "/wor" + "k"
        self.put("docs/a.md", f"see {home}/main\n")
        check_tree.check_places(self.root, self.errors)
        self.assertEqual(len(self.errors), 1)
        self.put("docs/a.md", "see src/work/main, https://x.org/root/a and homework/x\n")
        self.errors = []
        check_tree.check_places(self.root, self.errors)
        self.assertEqual(self.errors, [])

    def undocumented(self, text):
        self.put("include/cflux/op.def", "")
        self.put("include/cflux/a.h", "/* cflux/a.h: a. */\n" + text)
        return [name for _, _, name in check_reference.undocumented(self.root)[1]]

    def test_documented(self):
        for text in ("/* What. */\nFX_API int fx_a(int x);\n",
                     "FX_API int fx_a(int x); /* what */\n",
                     "/* Both. */\nFX_API int fx_a(int x);\nFX_API int fx_b(int x);\n",
                     "/* Kinds. */\ntypedef enum fx_a {\n    FX_ONE,\n    FX_TWO\n} fx_a;\n",
                     "/* What. */\nFX_API int fxi_a(int x);\n\n#define fx_a(x) fxi_a(x)\n",
                     "/* ---- Dense: y = W·x ---- */\ntypedef struct fx_a {\n    int x;\n} fx_a;\n",
                     "FX_API int fxi_a(int x);\n"):
            self.assertEqual(self.undocumented(text), [], text)

    def test_undocumented(self):
        for text, names in (("FX_API int fx_a(int x);\n", ["fx_a"]),
                            ("/* What. */\n\nFX_API int fx_a(int x);\n", ["fx_a"]),
                            ("/* ---- title ---- */\nFX_API int fx_a(int x);\n", ["fx_a"]),
                            ("/* A. */\nFX_API int fx_a(int x);\n\nFX_API int fx_b(int x);\n", ["fx_b"]),
                            ("typedef enum fx_a { FX_ONE, FX_TWO /* two */ } fx_a;\n", ["FX_ONE", "fx_a"]),
                            ("#define FX_A 1\n", ["FX_A"]),
                            ("static inline int fx_a(void)\n{\n    return 1;\n}\n", ["fx_a"]),
                            ("/* A. */\nFX_API int fxi_a(int x);\nFX_API int fx_b(int x);\n", ["fx_b"]),
                            ("FX_API int fxi_a(int x);\n#define fx_a(x) fxi_a(x)\n", ["fx_a"]),
                            ("#ifdef __cplusplus\nint fx_c(int);\n#else\nint fx_a(int);\n#endif\n", ["fx_a"])):
            self.assertEqual(sorted(self.undocumented(text)), sorted(names), text)

    def names(self, text):
        self.put("src/nn/layers.def", "LAYER(a)\n")
        self.put("include/cflux/a.h", text)
        return check_names.check(self.root)[1]

    def test_names(self):
        layer = "FXI_OPTION_STRUCT(fx_a_args, L);\nFX_API fx_a_layer *fxi_a(const fx_a_args *a);\n#define fx_a(...) fxi_a(__VA_ARGS__)\n"
        for text in ("", "typedef enum fx_b { FX_B_ONE = 1, FX_B_TWO } fx_b;\n", "typedef enum fx_b_kind { FX_B_ONE } fx_b_kind;\n",
                     "F(fx_axes, dims, 0)\nvoid fx_f(fx_axes dims, int n, const int64_t *sizes);\n",
                     "typedef int (*fx_b_fn)(int x);\n", "FXI_OPTION_STRUCT(fx_loss_args, L);\n",
                     "FX_API int fxi_b(int x);\nstatic inline int fx_b(int x)\n{\n    return fxi_b(x);\n}\n"):
            self.assertEqual(self.names(layer + text), [], text)
        for text, said in (("FXI_OPTION_STRUCT(fx_b_opts, L);\n", "fx_b_opts"), ("FXI_OPTION_STRUCT(fx_b_args, L);\n", "fx_b_args"),
                           ("typedef enum fx_b { FX_ONE } fx_b;\n", "FX_ONE of fx_b"),
                           ("void fx_f(int ndims, const int64_t *dims);\n", "dims are axes"),
                           ("struct fx_b { int64_t dims[8]; };\n", "dims are axes"),
                           ("typedef int (*fx_b_hook)(int x);\n", "fx_b_hook"),
                           ("FX_API int fxi_b(int x);\n", "fxi_b: no macro"),
                           ("FX_API int *fxi_b(int x, int (*f)(int));\n", "fxi_b: no macro")):
            errors = self.names(layer + text)
            self.assertEqual(len(errors), 1, text)
            self.assertIn(said, errors[0])
        self.assertIn("takes fx_b_args, not fx_a_args", self.names(layer.replace("fx_a_args *a", "fx_b_args *a"))[0])
        self.assertIn("expected fx_a_layer of fx_a_args", self.names(layer.replace("fx_a_layer", "fx_b_layer"))[0])
        self.assertIn("no function makes", self.names("")[0])

    def test_header_that_looks_for_cxx(self):
        for text, count in (("#ifdef __cplusplus\nint f(int);\n#endif\n", 1), ("#if !defined(__cplusplus)\n#endif\n", 1),
                            ("/* __cplusplus is for base.h */\n", 0)):
            self.put("include/cflux/a.h", text)
            errors = []
            check_headers.check_looks(self.root, ["cflux/a.h"], errors)
            self.assertEqual(len(errors), count, text)

    def test_macro_that_stays_in_cxx(self):
        self.put("include/cflux.h", "#define fx_a(x) (x)\n#define fx_new(T) (T)\n")
        errors = []
        self.assertEqual(check_headers.check_macros(self.root, errors), 2)
        self.assertIn("fx_a is still a macro in C++", errors)

    def test_header_with_a_warning(self):
        self.put("include/cflux/a.h", "typedef struct b { } b;\n")
        text = "#include <cflux/a.h>\n"
        self.assertNotEqual(check_headers.compile_one(self.root, ["gcc", "-std=c11"], "c", text), "")
        self.put("include/cflux/a.h", "typedef struct b { int c; } b;\n")
        self.assertEqual(check_headers.compile_one(self.root, ["gcc", "-std=c11"], "c", text), "")


class Pages(Scratch):
    def page(self, text):
        self.put("docs/b.md", "# A title, `fx_a` and more\n\n## Two (2)\n")
        self.put("docs/a.md", text)
        self.errors = []
        path = os.path.join(self.root, "docs", "a.md")
        check_pages.check_links(self.root, path, self.errors)
        check_pages.check_names(self.root, path, {"fx_a", "FX_A"}, self.errors)
        return len(self.errors)

    def test_links(self):
        for good in ("[b](b.md)", "[b](b.md#two-2)", "[b](b.md#a-title-fx_a-and-more)", "[x](https://x.org/y)",
                     "# Here\n[h](#here)", "```c\nx[i](1);\n```", "[d](../docs)"):
            self.assertEqual(self.page(good + "\n"), 0, good)
        for bad in ("[c](c.md)", "[b](b.md#three)", "[h](#here)", "[d](../dox)"):
            self.assertEqual(self.page(bad + "\n"), 1, bad)

    def test_names(self):
        for good in ("`fx_a(x)` and `FX_A`", "`fx_…`", "fx_b", "```c\nfx_b();\n```", "`my_fx_b`",
                     "## Renamed in 2\n\n| 1 | 2 |\n|---|---|\n| `fx_b` | `fx_a` |"):
            self.assertEqual(self.page(good + "\n"), 0, good)
        for bad in ("`fx_b(x)`", "`.x = FX_B`", "| `fx_b` | `fx_a` |", "## Renamed in 2\n\n| `fx_a` | `fx_b` |"):
            self.assertEqual(self.page(bad + "\n"), 1, bad)

    def test_navigation(self):
        self.put("docs/mkdocs.yml", "nav:\n  - A: a.md\n  - C: c.md\n")
        self.page("# A\n")
        check_pages.check_navigation(self.root, self.errors)
        self.assertEqual(len(self.errors), 2)
        self.assertIn("b.md", self.errors[0])
        self.assertIn("c.md", self.errors[1])


    def test_design_notes(self):
        self.put("docs/design/1.md", "# A\n\n## Context\n\n## Alternatives\n")
        self.put("docs/design/2.md", "# A\n\n## Context\n\n## Rejected\n\n## Context\n")
        self.assertEqual(check_pages.check_design_notes(self.root, self.errors), 2)
        self.assertEqual([e.partition(";")[0] for e in self.errors],
                         ['docs/design/2.md: the heading "Rejected"', 'docs/design/2.md: the heading "Context" is used 2 times'])


class Phrases(Scratch):
    ROWS = [("nobody knows", "unknown"), ("what is no", "not a …"), ("which the … has not", "lacks")]

    def found(self, path, text):
        for page in ("README.md", "CONTRIBUTING.md"):
            self.put(page, "")
        self.put(path, text)
        errors, _, _ = check_phrases.check(self.root, self.ROWS)
        os.remove(os.path.join(self.root, path))
        return [e.partition(";")[0] for e in errors]

    def test_pages(self):
        self.assertEqual(self.found("docs/a.md", "a\nb Nobody\n  knows.\n"), ["docs/a.md:2: \"nobody knows\""])
        self.assertEqual(len(self.found("docs/a.md", "an array which the object has not, and what is no file")), 2)
        self.assertEqual(self.found("docs/a.md", "nobody knowsit, there what is not"), [])
        self.assertEqual(len(self.found("docs/design/1.md", "nobody knows")), 1)

    def test_strings(self):
        self.assertEqual(self.found("src/a.c", 'f("x",\n  "%s: nobody "\n  "knows");'), ["src/a.c:2: \"nobody knows\""])
        self.assertEqual(self.found("src/a.c", "char c = '\"'; int nobody, knows; /* \" */"), [])
        self.assertEqual(self.found("tests/a.c", 'f("nobody knows");'), [])

    def test_comments(self):
        for path in ("src/a.c", "tools/a.h", "tests/a.cc"):
            self.assertEqual(self.found(path, "int i;\n/* a \"b\n * nobody\n * knows */\n"), [f"{path}:3: \"nobody knows\""])
            self.assertEqual(len(self.found(path, "int i; // nobody knows")), 1)
        self.assertEqual(len(self.found("tests/a.py", 'x = "#"  # nobody knows\n"""and nobody knows"""\ny = "nobody knows"\n')), 2)

    def test_comparisons(self):
        self.ROWS = [("is no …", "is not a …")]
        self.assertEqual(len(self.found("docs/a.md", "it is no file")), 1)
        self.assertEqual(self.found("docs/a.md", "it is no longer, it is no\nmore than, there is no file"), [])


class Messages(Scratch):
    def found(self, text):
        self.put("src/a.c", text)
        return check_messages.check(self.root)

    def test_a_limit_has_a_value(self):
        for wrong in ('"conv", "pad is negative"', 'n < 0 ? "n is too large" : "n must be from 0 to 1"', '"keep must be at least 1"',
                      '"the " "index is out of " /* ) */ "range"'):
            errors, calls = self.found(f"int f(void)\n{{\n    return fx_fail(1, {wrong});\n}}\n")
            self.assertEqual((len(errors), calls), (1, 1), wrong)
            self.assertTrue(errors[0].startswith("src/a.c:3: "), errors)
        for good in ('"conv", "pad is %d, expected at least 0", pad', '"%s", "the pad is %d: too large"', '"the array is NULL"',
                     '"cat", "%s", why', 'what', "(')'), \"the array is NULL\""):
            self.assertEqual(self.found(f"int f(void) {{ return fx_fail(1, {good}); }}")[0], [], good)

    def test_a_message_has_three_words(self):
        self.assertEqual(len(self.found('fxi_bytes_fail(b, 0, "no memory"); refuse("not good"); x.fail("a b");')[0]), 2)
        self.assertEqual(self.found('fx_fail(1, "op", "out of memory");')[0], [])


class Comments(Scratch):
    def found(self, text):
        self.put("src/a.c", text)
        return check_comments.check(self.root)[0]

    def test_gaps(self):
        self.assertEqual(self.found("int i; /* a\n  * b  c */\n"), ["src/a.c:2: two blanks between words"])
        self.assertEqual(self.found('/* a  b\n * c  d */ char *s = "/* a  b */"; /* "a  b" */ /* f();     g */'), [])

    def test_joined_tables(self):
        long = "a" * 30
        self.assertEqual(self.found(f"/* A report: {long} b unused        c\n * other_sizes   {long} {long} */\n"), ["src/a.c:1: a wide gap in a paragraph"])
        for good in (f"/* Report:\n *   unused        {long}\n *   other         {long} */", f"/* unused    {long}     {long}\n * more      c */"):
            self.assertEqual(self.found(good + "\n"), [], good)

    def test_shares(self):
        self.assertEqual(check_comments.share(["/* a\n * b */\n\nint i;\n", 'char *s = "/* */";\n']), 0.5)
        for folder in check_comments.SHARES:
            self.put(folder + "/a.c", "/* a */\nint a, b;\nint c;\n")
        self.put("src/exec/a.c", "/* a */\n" + "int a;\n" * 9)
        check_comments.check_shares(self.root, self.errors)
        self.assertEqual([e.partition(":")[0] for e in self.errors], ["src/exec"])

    def test_ragged(self):
        self.assertEqual(self.found("/* a\n * b */\n"), ["src/a.c:1: the next line's first word fits"])
        long = "a" * 60
        for good in (f"/* {long}\n * {long} */", "/* a:\n * b */", "/* a\n *\n *   b\n *   c\n */", "/* a  b\n * c  d */", "int i; /* a\n * b */"):
            self.assertEqual(self.found(good + "\n"), [], good)


class Docs(unittest.TestCase):
    PAGE = "a\n```c\nint x = 1;\n```\n```text output\nsum …\n```\n\n```sh\nls\n```\n```c decl\nint f(void);\n```\n"

    def test_blocks(self):
        blocks = check_docs.blocks_of(self.PAGE)
        self.assertEqual([b.info for b in blocks], ["c", "c decl"])
        self.assertEqual(blocks[0].line, 3)
        self.assertEqual(blocks[0].output, "sum …")
        self.assertIsNone(blocks[1].output)

    def test_output(self):
        self.assertTrue(check_docs.matches("a … b\nc", "a 12 b\nc\n"))
        self.assertTrue(check_docs.matches("a\n…\nd", "a\nb\nc\nd\n"))
        self.assertFalse(check_docs.matches("a\nd", "a\nb\n"))
        self.assertFalse(check_docs.matches("a.b", "axb"))

    def test_excerpt(self):
        self.assertTrue(check_docs.contains("x;\n  int  y;\nz;", "int y;\nz;"))
        self.assertFalse(check_docs.contains("x;\nint y;\nz;", "x;\nz;"))
        self.assertFalse(check_docs.contains("x;", "\n"))

    def test_commands_of_a_program(self):
        def runs(text, info="sh run"):
            return check_docs.compiles_and_runs(check_docs.Block(info, text, 1), "a.c")
        self.assertTrue(runs("cc a.c -o a $(pkg-config --libs cflux)\nrm b\n./a 1"))
        for text in ("cc a.c -o a", "./a\ncc a.c -o a", "cc b.c -o a\n./a", "cc a.c -o a\n./a2", "echo a.c"):
            self.assertFalse(runs(text), text)
        self.assertFalse(runs("cc a.c -o a\n./a", "c"))


class FluxNames(unittest.TestCase):
    def errors(self, table, symbols=("fx_good",), names="a b c", later="c"):
        errors = []
        kept = check_flux_names.NAMES, check_flux_names.NOT_YET
        check_flux_names.NAMES, check_flux_names.NOT_YET = {"P": names}, {"P": later}
        try:
            rows = check_flux_names.rows("### Names of P\n" + table)
            check_flux_names.check_package("P", rows.get("P", []), set(symbols), errors)
        finally:
            check_flux_names.NAMES, check_flux_names.NOT_YET = kept
        return " ".join(errors)

    GOOD = "| `a`, `b` | `fx_good` | |\n| `c` | not yet | |\n"

    def test_complete(self):
        self.assertEqual(self.errors(self.GOOD), "")

    def test_faults(self):
        self.assertIn("b has no row", self.errors(self.GOOD.replace(", `b`", "")))
        self.assertIn("fx_good, for a, is not declared", self.errors(self.GOOD, symbols=()))
        self.assertIn("a has two rows", self.errors(self.GOOD + "| `a` | `fx_good` | |\n"))
        self.assertIn("d is not a name of P", self.errors(self.GOOD + "| `d` | `fx_good` | |\n"))
        self.assertIn("neither a name in C nor a reason", self.errors(self.GOOD.replace("`fx_good`", "–")))
        self.assertIn("c is not in NOT_YET", self.errors(self.GOOD, later=""))
        self.assertIn("c is in NOT_YET", self.errors(self.GOOD.replace("not yet", "`fx_good`")))


if __name__ == "__main__":
    unittest.main()
