#!/usr/bin/env python3
"""tests/unit/test_shared_trees.c has a row for every public function that is given a tree of objects.

A function is given a tree if a header declares a parameter `void *`, `const void *` or a list of them, or an option
struct with such a member. Functions for which the pointer is something else are listed in NO_TREE with the reason.
Usage: check_shared_trees.py [root]
"""
import glob
import os
import re
import sys

LEAST = 90
# Internal headers whose functions are given trees by the files that keep them.
INTERNAL = ["src/optim/state_parts.h"]
NO_TREE = {
    "makes an object of the parts, and does not look into them":
        "fx_named_tuple_from",
    "looks at the heads of the objects alone":
        "fx_layer_options fx_layer_describe "
        "fx_type_of fx_is fx_is_array fx_child_name fx_child_named fx_has_children fx_class_name "
        "fx_predicted_classes fx_predicted_probabilities fx_predicted_text fx_table_columns fx_table_features fx_table_fits",
    "is given an option struct, whose objects it keeps": "fx_layer_make",
    "is what the rows are made of": "fx_tree_walk",
    "the pointer is memory, a callback's argument or an address":
        "fxi_from fxi_borrow fxi_from_c fx_read_into fx_read_as fx_error_set_hook "
        "fx_message_set_hook fx_plugins fx_kernels_list fx_connection_new fx_load_bytes",
    "the object holds texts only": "fxi_metadata fx_metadata_text fx_metadata_key",
    "the data is arrays in one tuple: see the row of fx_num_obs": "fx_mapobs_with fx_dist_data fx_dist_data_ceil",
    "checks the group and calls fxi_states_whole and fxi_states_divide, which have a row":
        "fx_dist_whole fx_dist_divide",
    "with one member x itself comes back; the walks of more are those of fx_visit and fxi_state_numbers":
        "fx_dist_synchronize fx_dist_model fx_dist_average",
}


def declarations(text):
    """(name, parameters) of every function that a header declares FX_API."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"(?m)^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$", "", text)
    for statement in re.findall(r"\bFX_API\b([^;{]*)[;{]", text):
        m = re.search(r"\b(fxi?_\w+)\s*\((.*)\)", statement, re.S)
        if m:
            yield m.group(1), " ".join(m.group(2).split())


def option_structs(text):
    """The option structs that have a pointer to an object."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    members = dict(re.findall(r"#define (FXI_\w+)\(F\)((?:[^\n]*\\\n)*[^\n]*)", text))
    for struct, name in re.findall(r"FXI_OPTION_STRUCT\((\w+), (\w+)\)", text):
        if re.search(r"F\(void \*", members.get(name, "")):
            yield struct


def main():
    root = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", ".."))
    functions, structs = {}, set()
    for path in sorted(glob.glob(os.path.join(root, "include", "cflux", "*.h"))):
        with open(path, encoding="utf-8") as f:
            text = f.read()
        structs.update(option_structs(text))
        functions.update(declarations(text))
    for path in INTERNAL:
        with open(os.path.join(root, path), encoding="utf-8") as f:
            functions.update(declarations(re.sub(r"(?m)^(?=\w[\w *]*\bfxi_\w+\()", "FX_API ", f.read())))
    given = {n for n, p in functions.items() if re.search(r"void \*(?:const \*)?\w", p)}
    given |= {n for n, p in functions.items() if any(re.search(rf"\b{s}\b", p) for s in structs)} | structs
    with open(os.path.join(root, "tests", "unit", "test_shared_trees.c"), encoding="utf-8") as f:
        table = f.read().split("rows[] = {")[1].split("};")[0]
    rows = {word for text in re.findall(r'"([^"]*)"', table) for word in text.split()}
    exempt = {name for names in NO_TREE.values() for name in names.split()}
    errors = [f"{name} is given a tree and has no row in test_shared_trees.c" for name in sorted(given - rows - exempt)]
    errors += [f"{name} has a row, but no header declares it" for name in sorted(rows - set(functions) - structs)]
    errors += [f"{name} is in NO_TREE, but no header gives it a pointer" for name in sorted(exempt - given)]
    if len(given) < LEAST:
        errors.append(f"found {len(given)} functions only, expected at least {LEAST}")
    for e in errors:
        print(e, file=sys.stderr)
    print(f"{len(given)} functions are given objects, {len(given & rows)} have rows, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
