// An interpreter for as much of PTX as a vector addition needs. It runs the text that it is given,
// so that a kernel without a bound, or with its parameters in another order, shows.
#ifndef PTX_H
#define PTX_H

#include <stddef.h>
#include <stdint.h>

struct ptx;

// ptx_parse reads the text. Returns NULL, and why in log, if the interpreter cannot.
struct ptx *ptx_parse(const char *text, char *log, size_t size);

// ptx_has_entry tells whether the text defines this kernel.
int ptx_has_entry(const struct ptx *ptx, const char *name);

// ptx_memory returns where 4 bytes of the GPU's memory are, NULL if that is not allocated.
typedef void *(*ptx_memory)(uint64_t address);

// ptx_run runs one thread. Returns 0, 700 for a wrong address, 719 for anything else.
int ptx_run(const struct ptx *ptx, void **arguments, uint32_t block, uint32_t width, uint32_t thread,
            ptx_memory memory);

#endif
