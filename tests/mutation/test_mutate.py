#!/usr/bin/env python3
"""scripts/mutate makes the documented kinds of mistakes, and judges them correctly, in a small tree of this test."""
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
import mutants  # noqa: E402
import mutate  # noqa: E402

CODE = """\
#include <stdio.h>
#define TWICE(x) ((x) + (x))
static const int table[2] = {1, 2}; /* a < b */
int count(const int *at, int n)
{
    static const int names[] = {3, 4};
    int sum = 0;
    char text[8];
    for (int i = 0; i < n; i++)
        if (at[i] > 5 && at[i] != n)
            sum += at[i] * 2;
    text[0] = '<';
    puts("a < b");
    return sum;
}
"""

BUILD = """\
cmake_minimum_required(VERSION 3.18)
project(toy C)
enable_testing()
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
add_library(cflux_objects OBJECT src/toy/clamp.c)
add_library(cflux_whole SHARED $<TARGET_OBJECTS:cflux_objects>)
set_target_properties(cflux_whole PROPERTIES OUTPUT_NAME cflux-whole)
foreach(name clamp broken)
    add_executable(test_${name} tests/unit/test_${name}.c)
    target_link_libraries(test_${name} PRIVATE cflux_whole)
    add_test(NAME unit/${name} COMMAND test_${name})
    set_tests_properties(unit/${name} PROPERTIES LABELS quick)
endforeach()
"""

TREE = {
    "CMakeLists.txt": BUILD,
    "src/toy/clamp.c": """\
extern int changed;
int changed;
int clamp(int x, int low);
int clamp(int x, int low)
{
    if (x < low) {
        changed = 1;
        return low;
    }
    return x;
}
int unused(int x);
int unused(int x)
{
    return x + 1;
}
""",
    # Fails without any mutant as well, so nothing is killed by it.
    "tests/unit/test_broken.c": "int clamp(int, int);\nint main(void)\n{\n    return clamp(1, 2);\n}\n",
    "tests/unit/test_clamp.c": """\
int clamp(int, int);
int main(void)
{
    return !(clamp(1, 2) == 2 && clamp(3, 2) == 3);
}
""",
    "tests/mutation/equivalent.txt": """\
# A comment.

src/toy/clamp.c
- if (x < low) {
+ if (x <= low) {
the results are equal where x is low
""",
}


class Mutants(unittest.TestCase):
    def setUp(self):
        self.made = mutants.mutants("a.c", CODE)
        self.pairs = {(m.kind, m.before, m.after) for m in self.made}

    def test_kinds(self):
        line = "if (at[i] > 5 && at[i] != n)"
        for wanted in (("comparison", "for (int i = 0; i < n; i++)", "for (int i = 0; i <= n; i++)"),
                       ("comparison", line, "if (at[i] >= 5 && at[i] != n)"),
                       ("comparison", line, "if (at[i] > 5 && at[i] == n)"),
                       ("constant", line, "if (at[i] > 6 && at[i] != n)"),
                       ("constant", line, "if (at[i] > 4 && at[i] != n)"),
                       ("constant", "for (int i = 0; i < n; i++)", "for (int i = 1; i < n; i++)"),
                       ("condition", line, "if (0)"), ("condition", line, "if (1)"),
                       ("condition", line, "if (!(at[i] > 5 && at[i] != n))"),
                       ("operand", line, "if (1 && at[i] != n)"), ("operand", line, "if (at[i] > 5 && 1)"),
                       ("operand", line, "if (at[i] > 5 || at[i] != n)"),
                       ("arithmetic", "sum += at[i] * 2;", "sum += at[i] / 2;"),
                       ("statement", "sum += at[i] * 2;", ";"),
                       ("statement", 'puts("a < b");', ";"), ("statement", "text[0] = '<';", ";")):
            self.assertIn(wanted, self.pairs)

    def test_left_alone(self):
        changed = {m.before for m in self.made}
        for line in ("#define TWICE(x) ((x) + (x))", "static const int table[2] = {1, 2}; /* a < b */",
                     "static const int names[] = {3, 4};", "char text[8];", "return sum;"):
            self.assertNotIn(line, changed)

    def test_lines_stay(self):
        for m in self.made:
            text = m.applied(CODE)
            self.assertEqual(text.count("\n"), CODE.count("\n"))
            self.assertNotEqual(text, CODE)
            self.assertIn(m.after.split("\n")[0], text.split("\n")[m.line - 1])

    def test_same_seed_same_mutants(self):
        first, again, other = ([m.key() for m in mutate.draw({"a.c": CODE}, seed)] for seed in (1, 1, 2))
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)
        self.assertEqual(sorted(first), sorted(other))
        self.assertGreaterEqual(len(first), 20)


class Judged(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as root, tempfile.TemporaryDirectory() as scratch_folder:
            for path, text in TREE.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                    f.write(text)
            subprocess.run(["git", "-C", root, "init", "-q"], check=True)
            command = [os.path.join(ROOT, "scripts/mutate"), "src/toy", "100", "1", "--tree", root, "--scratch", scratch_folder]
            run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
            cls.none = subprocess.run([*command, "--tests", "^unit/broken$"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      text=True, check=False).stdout
        cls.status, cls.out, cls.errors = run.returncode, run.stdout, run.stderr

    def test_killed(self):
        self.assertIn("condition: killed by unit/clamp (fails)\n  - if (x < low) {\n  + if (0) {\n", self.out, self.errors)
        self.assertNotIn("killed by unit/broken", self.out)

    def test_survived(self):
        self.assertIn("src/toy/clamp.c:15: arithmetic: SURVIVED: no test runs this line\n  - return x + 1;\n", self.out)
        self.assertEqual(self.status, 1)

    def test_equivalent(self):
        self.assertIn("comparison: equivalent: the results are equal where x is low\n", self.out)

    def test_test_that_fails_anyway(self):
        self.assertIn("left out: unit/broken fails without a mutant", self.errors)

    def test_only_some_tests(self):
        self.assertRegex(self.none, r"(?m)^src/toy: 0/\d+ killed")

    def test_summary(self):
        self.assertRegex(self.out, r"(?m)^src/toy: [1-9]\d*/\d+ killed \(\d+ percent\), 1 known to change nothing$")


class Equivalent(unittest.TestCase):
    def test_entries_are_mutants_of_this_tree(self):
        made = {}
        for entry, reason in mutate.read_equivalent(ROOT).items():
            path = entry[0]
            if path not in made:
                with open(os.path.join(ROOT, path), encoding="utf-8") as f:
                    made[path] = {m.key() for m in mutants.mutants(path, f.read())}
            self.assertTrue(entry in made[path], f"no such mutant, the line has changed: {entry}")
            self.assertTrue(reason.strip())


if __name__ == "__main__":
    unittest.main()
