/* head_plugin.c: plugins that consist only of their head, for tests of the loader. Built for both
 * kinds of plugin, each without a defect and with one (HEAD_…). HEAD_SERVES makes a kernel library.
 */
#include <cflux/backend.h>

#ifdef HEAD_SERVES
#define OWN_KIND      FX_PLUGIN_KERNEL_LIBRARY
#define OTHER_KIND    FX_PLUGIN_BACKEND
#define FORMER_SYMBOL fxi_plugin_table
#else
#define OWN_KIND      FX_PLUGIN_BACKEND
#define OTHER_KIND    FX_PLUGIN_KERNEL_LIBRARY
#define FORMER_SYMBOL fx_backend_plugin
#define HEAD_SERVES   NULL
#endif

#ifdef HEAD_NEEDS_LIBRARY
int fake_library_function(void);
extern FX_API int (*const head_needs)(void);
FX_API int (*const head_needs)(void) = fake_library_function;
#endif

#ifdef HEAD_FORMER
/* The symbol that plugins of ABI 2 exported. */
extern FX_API const uint32_t FORMER_SYMBOL[20];
FX_API const uint32_t FORMER_SYMBOL[20] = {2, 100, 100};
#elif defined HEAD_NO_SYMBOL
extern FX_API const int something_else;
FX_API const int something_else = 1;
#else
FX_PLUGIN_EXPORT(fx_plugin_head) = {
#ifdef HEAD_OTHER_ABI
    .abi = FX_PLUGIN_ABI + 1,
#else
    .abi = FX_PLUGIN_ABI,
#endif
#ifdef HEAD_OTHER_KIND
    .kind = OTHER_KIND,
#else
    .kind = OWN_KIND,
#endif
#ifdef HEAD_OTHER_SIZES
    .sizes = {sizeof(fx_plugin_head), sizeof(fx_plugin_head) + 8},
#else
    .sizes = FX_PLUGIN_SIZES_HERE(fx_plugin_head, fx_host),
#endif
    .version = "0.0.1",
#ifdef HEAD_WRONG_NAME
    .name = "Quartz",
#elif !defined HEAD_NO_NAME
    .name = HEAD_NAME,
#endif
#ifdef HEAD_WRONG_SERVES
    .serves = "Abacus",
#else
    .serves = HEAD_SERVES,
#endif
};
#endif
