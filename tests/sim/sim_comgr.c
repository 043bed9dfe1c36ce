/* sim_comgr.c: the architectures that hipRTC supports. */
#include <stddef.h>

__attribute__((visibility("default"))) int amd_comgr_get_isa_count(size_t *out);
__attribute__((visibility("default"))) int amd_comgr_get_isa_name(size_t k, const char **out);

static const char *const names[] = {"amdgcn-amd-amdhsa--gfx900", "amdgcn-amd-amdhsa--gfx90a",
                                    "amdgcn-amd-amdhsa--gfx942", "amdgcn-amd-amdhsa--gfx1100"};

int amd_comgr_get_isa_count(size_t *out)
{
    *out = sizeof names / sizeof *names;
    return 0;
}

int amd_comgr_get_isa_name(size_t k, const char **out)
{
    *out = names[k];
    return 0;
}
