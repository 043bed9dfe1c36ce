#!/usr/bin/env python3
"""The declarations of cflux.f90 agree with the C headers.

  * Structs: each type with bind(C) has the members of the C struct, at the same offsets and with the same sizes, and an
    option struct has the same defaults. A program in each language prints them; that in Fortran uses a copy of the
    module in which everything is public.
  * Functions: each interface with bind(C) has the arguments and the result of the C function, and the library exports it.

Without a Fortran compiler the structs are skipped with a message.
Usage: check_layouts.py BUILD
"""
import os
import re
import subprocess
import sys
import tempfile

import fortran_compiler as fortran
from fortran_compiler import MODULE, ROOT

INCLUDE = os.path.join(ROOT, "include")
C_NAMES = {"c_error": "fx_error", "c_batch": "fx_batch", "c_arg": "fxi_arg"}
LEAST_STRUCTS, LEAST_MEMBERS, LEAST_FUNCTIONS = 10, 80, 80
# Functions of the C library, not of cflux.
OTHERS = {"strlen": ("size", ["ptr"])}


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def headers():
    folder = os.path.join(INCLUDE, "cflux")
    text = "".join(read(os.path.join(folder, name)) for name in sorted(os.listdir(folder)) if name.endswith(".h"))
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def structs(module):
    """(type, its members without padding), in the order of the file."""
    for m in re.finditer(r"(?m)^    type, bind\(C\) :: (\w+)\n(.*?)^    end type \1$", module, re.S):
        members = []
        for line in m[2].split("\n"):
            names = line.partition("::")[2]
            for name in re.findall(r"(?:^|,)\s*(\w+)", re.sub(r"\([^)]*\)", "", re.sub(r"=[^,]*", "", names))):
                if not name.startswith("pad_"):
                    members.append(name)
        yield m[1], members


def program_in_fortran(types):
    lines = ["program layouts", "    use cflux", "    use, intrinsic :: iso_c_binding", "    implicit none"]
    lines += [f"    call of_{name}()" for name, _ in types] + ["contains"]
    lines += ["    subroutine show(type, member, whole, part, bytes)",
              "        character(len=*), intent(in) :: type, member", "        type(c_ptr), intent(in) :: whole, part",
              "        integer(c_size_t), intent(in) :: bytes", "        integer(c_int8_t), pointer :: b(:)",
              "        call c_f_pointer(part, b, [min(bytes, 8_c_size_t)])",
              "        write (*, '(3a, 2(1x, i0), 8(1x, z2.2))') type, ' ', member, &",
              "            transfer(part, 0_c_intptr_t) - transfer(whole, 0_c_intptr_t), bytes, b",
              "    end subroutine show"]
    for name, members in types:
        lines += [f"    subroutine of_{name}()", f"        type({name}), target, save :: v",
                  f"        write (*, '(a, 1x, i0)') '{name}', c_sizeof(v)"]
        lines += [f"        call show('{name}', '{m}', c_loc(v), c_loc(v%{m}), c_sizeof(v%{m}))" for m in members]
        lines += [f"    end subroutine of_{name}"]
    return "\n".join(lines) + "\nend program layouts\n"


def program_in_c(types, macros):
    lines = ["#include <cflux.h>", "#define COUNT(type, name, value) +1",
             "static void show(const char *type, const char *member, size_t offset, size_t size, const void *part)", "{",
             "    const unsigned char *b = part;", '    printf("%s %s %zu %zu", type, member, offset, size);',
             "    for (size_t i = 0; i < (size < 8 ? size : 8); i++)", '        printf(" %02X", b[i]);', '    printf("\\n");', "}",
             "#define SHOW(type, c_type, member) show(type, #member, offsetof(c_type, member), sizeof v.member, &v.member)",
             "int main(void)", "{"]
    for name, members in types:
        c_name = C_NAMES.get(name, name)
        start = f"{macros[c_name]}(FXI_DEFAULT)" if c_name in macros else "0"
        lines += [f"    {{\n        const {c_name} v = {{{start}}};", f'        printf("{name} %zu\\n", sizeof v);']
        lines += [f'        SHOW("{name}", {c_name}, {m});' for m in members]
        if c_name in macros: # the first member is the size
            lines += [f"        _Static_assert({len(members)} == 1 {macros[c_name]}(COUNT), \"members\");"]
        lines += ["    }"]
    return "\n".join(lines) + "\n    return 0;\n}\n"


def check_structs(module, text, folder, errors):
    types = list(structs(module))
    macros = dict(re.findall(r"(?m)^FXI_OPTION_STRUCT\((\w+), (\w+)\);", text))
    public = re.sub(r"(?m)^    private$", "", re.sub(r"(?m)^    public :: .*\n", "", module))
    with open(os.path.join(folder, "public.f90"), "w", encoding="utf-8") as f:
        f.write(public)
    with open(os.path.join(folder, "layouts.f90"), "w", encoding="utf-8") as f:
        f.write(program_in_fortran(types))
    with open(os.path.join(folder, "layouts.c"), "w", encoding="utf-8") as f:
        f.write(program_in_c(types, macros))
    # The program uses only the types of the module, so it is linked without the module's procedures.
    compiler = fortran.compiler()
    fortran.run([*compiler, "-fsyntax-only", "public.f90"], folder)
    fortran.run([*compiler, "layouts.f90", "-o", "in_fortran"], folder)
    fortran.run(["cc", "-std=c11", "-I", INCLUDE, "layouts.c", "-o", "in_c"], folder)
    ours, theirs = (fortran.run([os.path.join(folder, name)]).split("\n")[:-1] for name in ("in_fortran", "in_c"))
    for a, b in zip(ours, theirs):
        if a != b:
            errors.append(f"in Fortran: {a}; in C: {b}")
    if len(ours) != len(theirs):
        errors.append(f"{len(ours)} lines in Fortran, {len(theirs)} in C")
    if len(types) < LEAST_STRUCTS or len(ours) < LEAST_MEMBERS:
        errors.append(f"only {len(types)} structs with {len(ours)} members")
    print(f"{len(types)} structs, {len(ours) - len(types)} members")


def kind_in_c(declaration):
    """The kind of an argument or a result: i32, i64, size, f64, bool, void, ptr, or the name of a struct."""
    words = re.sub(r"\bconst\b", " ", declaration).strip()
    if "*" in words or words.split()[0] == "fx_formula_fn":
        return "ptr"
    kinds = {"int": "i32", "fx_status": "i32", "fx_dtype": "i32", "fx_dist_kind": "i32", "int64_t": "i64", "uint64_t": "i64",
             "size_t": "size", "double": "f64", "bool": "bool", "void": "void"}
    return kinds.get(words.split()[0], words.split()[0])


def functions_in_c(text):
    """name → (kind of the result, kinds of the arguments)"""
    found = {}
    for m in re.finditer(r"\bFX_API ([^;(]*?)\b(fxi?_\w+)\(([^;{]*)\)(?: FXI_PRINTF\([^)]*\))?;", text):
        arguments = [] if m[3].strip() == "void" else m[3].split(",")
        found[m[2]] = kind_in_c(m[1]), [kind_in_c(a) for a in arguments]
    return found


def kind_in_fortran(declaration):
    """(kind, passed by value)"""
    spec = declaration.split("::")[0]
    by_value = re.search(r",\s*value\b", spec) is not None
    kinds = {"integer(c_int)": "i32", "integer(c_int64_t)": "i64", "integer(c_size_t)": "size", "real(c_double)": "f64",
             "logical(c_bool)": "bool", "type(c_ptr)": "ptr", "type(c_funptr)": "ptr"}
    base = re.match(r"\s*(\w+\([\w=*]+\))", spec)[1]
    struct = re.fullmatch(r"type\((\w+)\)", base)
    return kinds.get(base, C_NAMES.get(struct[1], struct[1]) if struct else base), by_value


def functions_in_fortran(module):
    """Yields (name in C, kind of the result, kinds of the arguments)."""
    pattern = r'(?m)^        (?:(\w+\([\w]+\)) function|subroutine) (\w+)\((.*)\) bind\(C, name="(\w+)"\)\n((?:            .*\n)*)'
    for m in re.finditer(pattern, module):
        declared = {}
        for line in m[5].split("\n"):
            if "::" in line and "import" not in line:
                kind, by_value = kind_in_fortran(line)
                for name in re.findall(r"\w+", re.sub(r"\([^)]*\)", "", line.partition("::")[2])):
                    declared[name] = kind if by_value else "ptr"
        arguments = re.findall(r"\w+", m[3])
        yield m[4], kind_in_fortran(m[1])[0] if m[1] else "void", [declared.get(a, "undeclared") for a in arguments]


def check_functions(module, text, build, errors):
    in_c, count = dict(functions_in_c(text), **OTHERS), 0
    exported = set(re.findall(r" [TBDR] (\w+)", subprocess.run(["nm", "-D", os.path.join(build, "libcflux.so")], text=True,
                                                            capture_output=True, check=True).stdout))
    for name, result, arguments in functions_in_fortran(module):
        count += 1
        if name not in in_c:
            errors.append(f"{name} is not a function of the headers")
        elif (result, arguments) != in_c[name]:
            errors.append(f"{name}: {result} {arguments} in Fortran, {in_c[name][0]} {in_c[name][1]} in C")
        if name not in exported and name not in OTHERS:
            errors.append(f"the library does not export {name}")
    if count < LEAST_FUNCTIONS or count != len(re.findall(r"bind\(C, name=\"\w", module)):
        errors.append(f"looked at {count} functions only")
    print(f"{count} functions")


def main():
    build, errors, module, text = os.path.abspath(sys.argv[1]), [], read(MODULE), headers()
    check_functions(module, text, build, errors)
    if fortran.compiler():
        with tempfile.TemporaryDirectory(prefix="cflux-") as folder:
            check_structs(module, text, folder, errors)
    else:
        print("skipped: the structs: there is no Fortran compiler (gfortran, or FC)")
    for e in errors:
        print(e, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
