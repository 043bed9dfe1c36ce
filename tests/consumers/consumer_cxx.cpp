// consumer_cxx.cpp: a C++17 program over the same headers and library.
#include <cflux.h>
#include <cstdio>

int main()
{
    fx_seed(1);
    FX_SCOPE;
    fx_array *x = fx_vector(1, 2, 3);
    std::printf("version %s\n", fx_version());
    std::printf("sum of squares: %g\n", fx_item(fx_sum(fx_square(x))));
    return fx_error_print(stderr);
}
