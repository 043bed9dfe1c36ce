"""The Conan recipe of cflux. It exports the sources of the tree that contains it: conan create packaging/conan (docs/install.md)."""
import glob
import os
import re

from conan import ConanFile
from conan.errors import ConanException, ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rm, rmdir

required_conan_version = ">=2.0"


class CfluxConan(ConanFile):
    name = "cflux"
    description = "Flux for C: neural networks as plain C expressions"
    license = "MIT"
    topics = ("neural-networks", "machine-learning")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False]}
    # Of the MongoDB driver only libbson is linked, which needs none of the driver's dependencies.
    default_options = {"shared": True, **{f"mongo-c-driver/*:{name}": False for name in
                                          ("with_ssl", "with_snappy", "with_zlib", "with_zstd", "with_icu", "srv")}}
    sources = ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "src/*")
    switched_off = ("CFLUX_TESTS", "CFLUX_TOOLS", "CFLUX_EXAMPLES", "CFLUX_BENCH", "CFLUX_MPI", "CFLUX_ONEDNN", "CFLUX_WERROR")

    @property
    def tree(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        self.version = re.search(r"project\(cflux VERSION ([0-9.]+)", load(self, os.path.join(self.tree, "CMakeLists.txt"))).group(1)

    def export_sources(self):
        for pattern in self.sources:
            copy(self, pattern, self.tree, self.export_sources_folder)

    def validate(self):
        if self.settings.compiler == "msvc":
            raise ConanInvalidConfiguration("cflux is built with gcc or clang; Microsoft's compiler cannot build it")

    def layout(self):
        cmake_layout(self)

    def requirements(self):
        self.requires("zlib/[>=1.2.11 <2]")
        self.requires("mongo-c-driver/[>=1.23 <3]")

    def generate(self):
        toolchain = CMakeToolchain(self)
        for name in self.switched_off:
            toolchain.cache_variables[name] = "OFF"
        bson = self.dependencies["mongo-c-driver"].cpp_info.components["bson"]
        files = [file for folder in bson.libdirs for suffix in (".so", ".dylib", ".dll.a", ".a")
                 for file in glob.glob(os.path.join(folder, f"lib{bson.libs[0]}{suffix}"))]
        if not files:
            raise ConanException(f"no library lib{bson.libs[0]} in {bson.libdirs}")
        toolchain.cache_variables["BSON_INCLUDE"] = bson.includedirs[0]
        toolchain.cache_variables["BSON_LIBRARY"] = files[0]
        toolchain.user_presets_path = False
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build(target="libraries")

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        lib = os.path.join(self.package_folder, "lib")
        for folder in (os.path.join(lib, "cmake"), os.path.join(lib, "pkgconfig"), os.path.join(self.package_folder, "share")):
            rmdir(self, folder)
        for pattern in ("libcflux.a",) if self.options.shared else ("libcflux.so*", "libcflux*.dylib", "libcflux.dll*"):
            rm(self, pattern, lib)
        if not self.options.shared:
            rm(self, "cflux.def", lib)
            rm(self, "libcflux.dll", os.path.join(self.package_folder, "bin"))

    def package_info(self):
        self.cpp_info.libs = ["cflux"]
        self.cpp_info.requires = ["zlib::zlib", "mongo-c-driver::bson"]
        if self.settings.os == "Linux":
            self.cpp_info.system_libs = ["m", "pthread", "dl"]
