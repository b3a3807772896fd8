// What the stand-ins share: the hardware of the machine and the faults asked for, both from
// environment variables. See the package's documentation for the words.
#ifndef FAKE_H
#define FAKE_H

#include <stddef.h>
#include <stdint.h>

#define FAKE_NAME "NVIDIA A100-SXM4-40GB"
#define FAKE_DRIVER "580.95.05"
#define MAX_GPUS 16
#define MAX_MIG 7

// fake_gpus returns how many GPUs FAKE_GPUS lists, and how many MIG devices each has; -1 is a GPU
// whose MIG mode is off.
int fake_gpus(int mig[MAX_GPUS]);

// fake_uuid is the unique id of a GPU, or of a MIG device of it if mig is not below 0.
void fake_uuid(int gpu, int mig, uint8_t uuid[16]);

// fake_uuid_text is the same as nvidia-smi prints it.
void fake_uuid_text(int gpu, int mig, char *text, size_t size);

// fake_bus is the PCI address of a GPU.
void fake_bus(int gpu, char *text, size_t size);

// fake_word finds the word "key" or "key=value" in the environment variable or, where that is not set, in the file of
// that name beside the library. Returns whether it is there, and its value, which is fallback where it has none.
int fake_word(const char *variable, const char *key, long fallback, long *value);

// fake_value returns the value of the word "key@gpu" or "key", or fallback if there is none.
long fake_value(const char *variable, const char *key, int gpu, long fallback);

// fake_open opens the file of that name beside the library and locks it, shared, until the process ends: what keeps a
// driver from being unloaded. Nothing happens where there is no such file.
void fake_open(const char *file);

// fake_fault hangs or crashes where the variable says so for this function, and returns the code
// with which the function must fail, or 0. gpu is the GPU concerned, -1 if none.
int fake_fault(const char *variable, const char *function, int gpu);

#endif
