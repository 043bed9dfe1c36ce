#!/usr/bin/env python3
"""Checks the recipes in packaging/ without the package managers.

  * The versions in the recipes are the project's.
  * Each CFLUX_ option that a recipe sets is an option of CMakeLists.txt.
  * portfile.cmake runs with functions in place of vcpkg's that print their arguments; the files that it names exist.
  * conanfile.py runs with modules in place of Conan's. The files that it exports are complete: CMake configures a copy of them
    with the options of each recipe.
  * Ruby, where it is installed, parses the formula.

Usage: check_recipes.py SOURCES
"""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import types

VCPKG = """
foreach(name vcpkg_check_linkage vcpkg_cmake_configure vcpkg_cmake_install vcpkg_cmake_config_fixup vcpkg_fixup_pkgconfig
        vcpkg_install_copyright)
    cmake_language(EVAL CODE "function(${name})\\nmessage(\\"${name};\\${ARGN}\\")\\nendfunction()")
endforeach()
"""


def fail(text):
    sys.exit(f"packaging: {text}")


def read(*parts):
    with open(os.path.join(*parts), encoding="utf-8") as f:
        return f.read()


def run(*command):
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        fail(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


class Anything:
    """A stand-in for the classes and functions of Conan that only builds call."""

    def __init__(self, *_):
        pass


def conan_recipe(root):
    """The class of conanfile.py, whose load and copy work on files of the tree."""
    def copy(_, pattern, source, target):
        found = [name for name in glob.glob(os.path.join(source, pattern.replace("/*", "/**")), recursive=True) if os.path.isfile(name)]
        if not found:
            fail(f"conanfile.py exports {pattern!r}, which matches no file")
        for name in found:
            to = os.path.join(target, os.path.relpath(name, source))
            os.makedirs(os.path.dirname(to), exist_ok=True)
            shutil.copyfile(name, to)

    for name in ("conan", "conan.errors", "conan.tools", "conan.tools.cmake", "conan.tools.files"):
        module = sys.modules[name] = types.ModuleType(name)
        for part in ("ConanFile", "CMake", "CMakeDeps", "CMakeToolchain", "cmake_layout", "rm", "rmdir"):
            setattr(module, part, Anything)
        module.ConanException = module.ConanInvalidConfiguration = Exception
        module.copy, module.load = copy, lambda _, path: read(path)
    names = {}
    exec(compile(read(root, "packaging/conan/conanfile.py"), "conanfile.py", "exec"), names)  # pylint: disable=exec-used
    recipe = names["CfluxConan"]()
    recipe.recipe_folder = os.path.join(root, "packaging/conan")
    return recipe


def vcpkg_options(root, work):
    """The options that portfile.cmake gives to CMake."""
    script = os.path.join(work, "port.cmake")
    port = os.path.join(root, "packaging/vcpkg/cflux/portfile.cmake")
    with open(script, "w", encoding="utf-8") as f:
        f.write(f'{VCPKG}set(CURRENT_PACKAGES_DIR "{work}/vcpkg")\nset(PORT cflux)\ninclude("{port}")\n')
    calls = {line.split(";")[0]: line.split(";")[1:] for line in run("cmake", "-P", script).splitlines() if line.startswith("vcpkg_")}
    configure = calls["vcpkg_cmake_configure"]
    if not os.path.samefile(configure[configure.index("SOURCE_PATH") + 1], root):
        fail("portfile.cmake builds from another folder than the tree")
    if not os.path.isfile(calls["vcpkg_install_copyright"][1]):
        fail("portfile.cmake installs a licence that does not exist")
    if read(work, "vcpkg/share/cflux/usage") != read(root, "packaging/vcpkg/cflux/usage"):
        fail("portfile.cmake does not install usage")
    return configure[configure.index("OPTIONS") + 1:]


def main(root):
    cmake_lists = read(root, "CMakeLists.txt")
    version = re.search(r"project\(cflux VERSION ([0-9.]+)", cmake_lists).group(1)
    known = set(re.findall(r"option\((CFLUX_\w+) |set\((CFLUX_\w+) \S+ CACHE", cmake_lists))
    known = {first or second for first, second in known}
    manifest = json.loads(read(root, "packaging/vcpkg/cflux/vcpkg.json"))
    if manifest["version"] != version:
        fail(f"vcpkg.json has version {manifest['version']}, the project {version}")

    with tempfile.TemporaryDirectory() as work:
        recipe = conan_recipe(root)
        recipe.set_version()
        if recipe.version != version:
            fail(f"conanfile.py has version {recipe.version}, the project {version}")
        formula = read(root, "packaging/homebrew/cflux.rb")
        recipes = {
            "vcpkg": vcpkg_options(root, work),
            "conan": [f"-D{name}=OFF" for name in recipe.switched_off],
            "homebrew": re.findall(r'"(-D[^"]+)"', formula),
        }
        for name, options in recipes.items():
            if len(options) < 5:
                fail(f"the recipe for {name} has only the options {options}")
            for option in options:
                if re.match(r"-D(\w+)=", option).group(1) not in known:
                    fail(f"the recipe for {name} sets {option}, which CMakeLists.txt does not have")
        # The formula builds the whole repository; the others need the exported files only.
        recipe.export_sources_folder = os.path.join(work, "exported")
        recipe.export_sources()
        for options in {tuple(sorted(recipes[name])) for name in ("vcpkg", "conan")}:
            text = run("cmake", "-S", recipe.export_sources_folder, "-B", os.path.join(work, str(hash(options))), *options)
            if "Manually-specified variables were not used" in text:
                fail(f"{options} contains variables that CMake does not read:\n{text}")

    test = read(root, "packaging/conan/test_package/CMakeLists.txt")
    if not os.path.isfile(os.path.join(root, "packaging/conan/test_package", re.search(r"add_executable\(\w+ (\S+)\)", test).group(1))):
        fail("the program of conan/test_package does not exist")
    compile(read(root, "packaging/conan/test_package/conanfile.py"), "conanfile.py", "exec")
    ruby = shutil.which("ruby")
    if ruby:
        run(ruby, "-c", os.path.join(root, "packaging/homebrew/cflux.rb"))
    print(f"3 recipes for version {version}: as expected{'' if ruby else '; Ruby is not installed, so the formula was not parsed'}")


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
