# The toolchain file of `make windows`: MinGW's gcc with winpthreads, for x86-64 Windows.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_C_COMPILER x86_64-w64-mingw32-gcc-posix)
set(CMAKE_CXX_COMPILER x86_64-w64-mingw32-g++-posix)
set(CMAKE_RC_COMPILER x86_64-w64-mingw32-windres)
# Windows 10 and later. MinGW's macros for isnan and others convert Float64 to Float32 in a branch that is not taken.
# gcc aligns the stack of Windows to 16 bytes, and may move vectors of 32 bytes to it with instructions that need 32 (GCC bug 54412):
# the assembler replaces these instructions.
set(CMAKE_C_FLAGS_INIT "-D_WIN32_WINNT=0x0A00 -Wno-float-conversion -Wa,-muse-unaligned-vector-move")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(kind LIBRARY INCLUDE PACKAGE) # not those of this machine
    set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()
set(CMAKE_FIND_ROOT_PATH ${CMAKE_BINARY_DIR}/prefix)
