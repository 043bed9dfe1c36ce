# A setting that CMake makes only if it runs on a Mac. macos.cmake names this file.
set(CMAKE_SHARED_LIBRARY_RUNTIME_C_FLAG "-Wl,-rpath,")
