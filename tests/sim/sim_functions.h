/* sim_functions.h: the functions of the driver, one for each row of the plugins' table. Each has
 * the symbol of the driver's function, and the arguments that the plugins expect. With SIM_LEAST
 * the library exports only those that the plugins need. Each first asks the script whether to fail,
 * and takes the simulator's lock. */
#ifndef SIM_FUNCTIONS_H
#define SIM_FUNCTIONS_H

#include "gpurt_api.h"
#include "sim.h"

#define SEEN_NEEDED "default"
#ifdef SIM_LEAST
#define SEEN_OPTIONAL "hidden"
#else
#define SEEN_OPTIONAL "default"
#endif
#define DECLARE(result, member, cuda, hip, need, arguments)                                        \
    __attribute__((visibility(SEEN_##need)))                                                       \
    result sim_##member arguments __asm__(FXI_RT_SYMBOL(cuda, hip));
FXI_RT_FUNCTIONS(DECLARE)
#undef DECLARE

#define NAME(result, member, cuda, hip, need, arguments) const char *member;
static const struct {
    FXI_RT_FUNCTIONS(NAME)
} names = {
#undef NAME
#define NAME(result, member, cuda, hip, need, arguments) FXI_RT_SYMBOL(cuda, hip),
    FXI_RT_FUNCTIONS(NAME)};
#undef NAME

#define BEGIN(member)                                                                              \
    int error = sim_begin(names.member, true);                                                     \
    if (error)                                                                                     \
    return sim_end(error)
#define BEGIN_ANY(member)                                                                          \
    int error = sim_begin(names.member, false);                                                    \
    if (error)                                                                                     \
    return sim_end(error)
/* Calls that a capture of this thread forbids, because they wait or allocate. */
#define BEGIN_UNCAPTURED(member)                                                                   \
    BEGIN(member);                                                                                 \
    error = sim_capture_forbids(names.member);                                                     \
    if (error)                                                                                     \
    return sim_end(error)

#endif
