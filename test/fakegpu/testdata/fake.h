// What the stand-ins share: the hardware of the machine and the faults asked for, both from
// environment variables. See the package's documentation for the words.
#ifndef FAKE_H
#define FAKE_H

#include <stddef.h>
#include <stdint.h>

#define FAKE_DRIVER "580.95.05"
#define FAKE_CUDA_VERSION 13000
#define MAX_GPUS 16
#define MAX_MIG 7
#define MAX_WORDS 4096
#define SPACE " \n"

// A profile of GPU instances: its number in NVML's interface and its own ID, how many slices of the GPU it has, its
// memory in MiB, multiprocessors and engines, how many there can be, and the placements as a mask of first memory
// slices, with the number of memory slices.
struct fake_profile {
	unsigned number, id, slices, memory, multiprocessors, copy, decoder, jpeg, ofa, count, starts, size;
};

// A model of GPUs. profiles is NULL for one without MIG; device and subsystem are PCI IDs, nvlinks the number of links.
struct fake_model {
	const char *word, *name;
	unsigned long long memory;
	unsigned major, minor, architecture, device, subsystem, nvlinks;
	const struct fake_profile *profiles;
	unsigned profile_count;
};

// fake_model returns the model of all GPUs, which FAKE_MODEL names.
const struct fake_model *fake_model(void);

// A compute instance and a GPU instance of the layout; ID and place count from 0.
struct fake_compute {
	unsigned id, slices, start;
};

struct fake_instance {
	unsigned id, profile, start, count; // profile is an index of the model's profiles.
	struct fake_compute compute[MAX_MIG];
};

struct fake_layout {
	int enabled;
	unsigned count;
	struct fake_instance instance[MAX_MIG];
};

// fake_layout_read reads how each GPU is partitioned: from the file FAKE_MIG of the state or, without one, from the
// words of FAKE_GPUS. Instances are in the order of their places.
void fake_layout_read(struct fake_layout layout[MAX_GPUS]);

// fake_layout_lock keeps other processes from changing the layout until fake_layout_write, which also writes it unless
// layout is NULL. Returns 0 if it could not be written.
int fake_layout_lock(void);
int fake_layout_write(int lock, const struct fake_layout layout[MAX_GPUS], int gpus);

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

// fake_words copies the words of the variable, or of the file of that name; returns whether there is one of both.
int fake_words(const char *variable, char *copy, size_t size);

// fake_path writes the path of the file of that name beside this library.
void fake_path(const char *file, char *path, size_t size);

// fake_state is fake_path for what the library writes: in the directory that FAKE_STATE names, if any.
void fake_state(const char *file, char *path, size_t size);

// fake_open opens the file of that name beside the library and locks it, shared, until the process ends: what keeps a
// driver from being unloaded. Nothing happens where there is no such file.
void fake_open(const char *file);

// fake_fault hangs or crashes where the variable says so for this function, and returns the code
// with which the function must fail, or 0. gpu is the GPU concerned, -1 if none.
int fake_fault(const char *variable, const char *function, int gpu);

#endif
