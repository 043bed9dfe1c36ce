#!/usr/bin/env python3
"""The checkers find what they are for: each is given a small tree with one known fault in it."""
import os
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "docs"))
import check_docs  # noqa: E402
import check_pages  # noqa: E402
import check_headers  # noqa: E402
import check_reference  # noqa: E402
import check_tree  # noqa: E402


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


class Tree(Scratch):
    def includes(self, path, header, exceptions=None):
        for folder, name in (("base", "memory.h"), ("array", "node.h"), ("plan", "step.h"),
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

    def test_wrong_direction(self):
        self.assertIn("may not include", self.includes("src/array/a.c", "step.h")[0])

    def test_layers_above_see_the_public_headers_only(self):
        self.assertIn("may not include", self.includes("src/nn/a.c", "node.h")[0])

    def test_backends_do_not_know_each_other(self):
        self.assertIn("may not include", self.includes("src/backends/cpu/a.c", "ref_kernels.h")[0])

    def test_backends_share_the_machinery_of_gpus(self):
        self.assertEqual(self.includes("src/backends/cpu/a.c", "gpu.h"), [])
        self.assertIn("may not include", self.includes("src/backends/gpu/a.c", "cpu_kernels.h")[0])

    def test_unknown_header_and_folder(self):
        self.assertIn("no file of src/", self.includes("src/plan/a.c", "nothing.h")[0])
        self.assertIn("not in the list", self.includes("src/misc/b.c", "memory.h")[0])

    def test_exceptions(self):
        table = {("nn", "node.h"): "for the test"}
        self.assertEqual(self.includes("src/nn/a.c", "node.h", table), [])
        self.assertIn("not needed", self.includes("src/nn/a.c", "memory.h", table)[0])

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
        for good in ("`fx_a(x)` and `FX_A`", "`fx_…`", "fx_b", "```c\nfx_b();\n```", "`my_fx_b`"):
            self.assertEqual(self.page(good + "\n"), 0, good)
        for bad in ("`fx_b(x)`", "`.x = FX_B`"):
            self.assertEqual(self.page(bad + "\n"), 1, bad)

    def test_navigation(self):
        self.put("docs/mkdocs.yml", "nav:\n  - A: a.md\n  - C: c.md\n")
        self.page("# A\n")
        check_pages.check_navigation(self.root, self.errors)
        self.assertEqual(len(self.errors), 2)
        self.assertIn("b.md", self.errors[0])
        self.assertIn("c.md", self.errors[1])


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


if __name__ == "__main__":
    unittest.main()
