#!/usr/bin/env python3
"""Public names follow the scheme of CONTRIBUTING.md ("Names").

  * The options of fx_NAME are an fx_NAME_args, which fxi_NAME takes; functions with the same options share one
    struct, which is named after what they do: FAMILIES lists them.
  * A layer fx_NAME of src/nn/layers.def has the options fx_NAME_args and makes an fx_NAME_layer.
  * The constants of the enum fx_NAME, or fx_NAME_kind, begin with FX_NAME_.
  * `dims` is a set of axes. Sizes are `sizes`.
  * A type of functions ends in _fn.
  * A function fxi_NAME that a header declares is called by a macro or an inline function of the headers.
Usage: check_names.py [root]
"""
import os
import re
import sys

# Structs of options that several functions take: why they have no function's name.
FAMILIES = {
    "fx_reduce_args": "sums, means, extremes and so on: the reductions",
    "fx_pool_args": "fx_pool_max and fx_pool_mean",
    "fx_loss_args": "the losses",
    "fx_augment_args": "random changes of images: fx_random_flip and so on",
    "fx_checkpoint_args": "fx_checkpoint_save and fx_checkpoint_load",
    "fx_no_options": "the options of layers without any",
}
# Constants without the name of their enum: why.
CONSTANTS = {"FX_OK": "a status that does not report a failure is written at every call",
             "FX_MPI": "the names of transports are written as in Flux", "FX_NCCL": "as FX_MPI"}
LEAST = {"structs of options": 25, "layers": 8, "constants": 100, "functions for macros": 80, "types of functions": 12}


def without_comments(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def read_headers(root):
    texts = {}
    for path, _, files in os.walk(os.path.join(root, "include")):
        for name in sorted(files):
            with open(os.path.join(path, name), encoding="utf-8") as f:
                texts[name] = without_comments(f.read())
    return texts


def lines_of_macros(text):
    """(the code of macros, the rest)."""
    macros = re.findall(r"(?m)^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$", text)
    return "\n".join(macros), re.sub(r"(?m)^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$", "", text)


def check_options(text, errors):
    structs = set(re.findall(r"(?m)^FXI_OPTION_STRUCT\((\w+),", text))
    functions = set(re.findall(r"\bfx_\w+(?=\()", text))
    for struct in sorted(structs - set(FAMILIES)):
        if not struct.endswith("_args") or struct[:-len("_args")] not in functions:
            errors.append(f"{struct}: options are called after their function, fx_NAME_args")
    for name, struct in re.findall(r"\bfxi_(\w+)\(const (fx_\w+) \*\w+\)", text):
        own = f"fx_{name}_args"
        if own in structs and struct != own:
            errors.append(f"fxi_{name} takes {struct}, not {own}")
    return len(structs)


def check_layers(text, layers, errors):
    for name in layers:
        made = re.search(rf"(fx_\w+) \*fxi_{name}\((?:const (fx_\w+) \*)?", text) or \
            re.search(rf"(fx_\w+) \*fx_{name}\(void()\)", text)  # a layer without options
        if not made:
            errors.append(f"no function makes the layer {name}")
        elif made[1] != f"fx_{name}_layer" or made[2] not in (None, "", f"fx_{name}_args"):
            errors.append(f"fxi_{name} makes {made[1]} of {made[2]}, expected fx_{name}_layer of fx_{name}_args")
    return len(layers)


def check_constants(text, errors):
    count = 0
    for body, enum in re.findall(r"typedef enum fxi?_\w+ \{(.*?)\} (fxi?_\w+);", text, re.S):
        stem = re.sub(r"_kind$", "", enum).upper() + "_"
        for constant in re.findall(r"\b(FXI?_\w+)\b(?=\s*(?:=|,|$))", lines_of_macros(body)[1]):
            count += 1
            if not constant.startswith(stem) and constant not in CONSTANTS and not constant.startswith("FXI_"):
                errors.append(f"{constant} of {enum}: its constants begin with {stem}")
    return count


def check_dims(text, errors):
    found = re.findall(r"\b(\w+ \*?)(?:const )?(dims|out_dims)\b(?=[\[,;)])", text)
    for kind, name in found:
        if kind.strip() not in ("fx_axes", "fx_dims"):
            errors.append(f"{kind}{name}: dims are axes; sizes are called sizes")
    return len(found)


def check_function_types(text, errors):
    names = re.findall(r"typedef [\w *]+\(\*(fxi?_\w+)\)\(", text)
    errors += [f"{n}: a type of functions ends in _fn" for n in names if not n.endswith("_fn")]
    return len(names)


def check_private(text, errors):
    macros, plain = lines_of_macros(text)
    declared = set(re.findall(r"\bFX_API\b[^;{]*?\b(fxi_\w+)\s*\([^;]*;", plain))
    declared -= set(re.findall(r"static inline[^;{]*?\b(fxi_\w+)\s*\(", plain))
    # Names that are put together: fxi_##name in a macro, for the arguments it is called with.
    built = set()
    for macro, before in re.findall(r"#define (\w+)\((?:[^\n]*\\\n)*[^\n]*?\b(fxi_)##\w+", macros):
        built |= {before + a for a in re.findall(rf"\b{macro}\((\w+)", text)}
    bodies = " ".join(re.findall(r"\)\s*\{(.*?)\n\}", plain, re.S))
    for name in sorted(declared - built):
        if not re.search(rf"\b{name}\b", macros) and not re.search(rf"\b{name}\b", bodies):
            errors.append(f"{name}: no macro of the headers uses it: make it fx_{name[4:]}, or private")
    return len(declared)


def check(root):
    """(count by what was looked at, errors)."""
    texts, errors = read_headers(root), []
    text = "\n".join(texts.values())
    with open(os.path.join(root, "src", "nn", "layers.def"), encoding="utf-8") as f:
        layers = re.findall(r"^LAYER\((\w+)\)", f.read(), re.M)
    check_dims(text, errors)
    return {"structs of options": check_options(text, errors), "layers": check_layers(text, layers, errors),
            "constants": check_constants(text, errors), "functions for macros": check_private(text, errors),
            "types of functions": check_function_types(text, errors)}, errors


def main():
    root = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else
                           os.path.join(os.path.dirname(__file__), "..", ".."))
    counts, errors = check(root)
    errors += [f"found {n} {what} only, expected at least {LEAST[what]}" for what, n in counts.items() if n < LEAST[what]]
    for e in errors:
        print(e, file=sys.stderr)
    print(", ".join(f"{n} {what}" for what, n in counts.items()) + f", {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
