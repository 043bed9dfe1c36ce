/* cpu_float_mode.h: the floating-point mode of a thread: rounding, and whether denormal numbers are
 * flushed to zero. Internal.
 *
 * Kernels run in the caller's mode on every thread, so that results do not depend on
 * which thread computes a part. If fx_flush_denormals is on, the mode flushes while a step runs.
 */
#ifndef CFLUX_CPU_FLOAT_MODE_H
#define CFLUX_CPU_FLOAT_MODE_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__SSE__)
/* MXCSR: results that are denormal become 0 (bit 15), and operands count as 0 (bit 6). The lowest
 * six bits report exceptions and belong to the program. */
enum { FXI_MODE_FLUSH = 1 << 15 | 1 << 6, FXI_MODE_REPORTS = 0x3F };
static inline uint64_t fxi_float_mode(void)
{
    return __builtin_ia32_stmxcsr() & ~(unsigned)FXI_MODE_REPORTS;
}
static inline void fxi_float_mode_set(uint64_t mode)
{
    __builtin_ia32_ldmxcsr((__builtin_ia32_stmxcsr() & FXI_MODE_REPORTS) | (unsigned)mode);
}
#elif defined(__aarch64__)
/* FPCR: bit 24 flushes operands and results. */
enum { FXI_MODE_FLUSH = 1 << 24 };
static inline uint64_t fxi_float_mode(void)
{
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}
static inline void fxi_float_mode_set(uint64_t mode)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(mode));
}
#else
enum { FXI_MODE_FLUSH = 0 };
static inline uint64_t fxi_float_mode(void)
{
    return 0;
}
static inline void fxi_float_mode_set(uint64_t mode)
{
    (void)mode;
}
#endif

extern int fxi_cpu_flush_choice; /* atomic; −1: not decided yet */
bool fxi_cpu_flush_decide(void);

/* Is fx_flush_denormals on? */
static inline bool fxi_cpu_flushes(void)
{
    const int now = __atomic_load_n(&fxi_cpu_flush_choice, __ATOMIC_RELAXED);
    return now >= 0 ? now : fxi_cpu_flush_decide();
}

#endif
