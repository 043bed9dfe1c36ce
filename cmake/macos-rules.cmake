# What CMake sets only on a Mac, whose version it asks for (macos.cmake).
set(CMAKE_SHARED_LIBRARY_RUNTIME_C_FLAG "-Wl,-rpath,")
