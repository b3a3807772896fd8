// What the parts of the stand-in for libnvidia-ml.so.1 share.
#ifndef DEVICE_H
#define DEVICE_H

#include "fake.h"
#include "nvml.h"

#define ENV "FAKE_NVML"
#define FAULT(gpu)                                                                                                     \
	do {                                                                                                               \
		int fault = fake_fault(ENV, __func__, gpu);                                                                    \
		if (fault) {                                                                                                   \
			return fault;                                                                                              \
		}                                                                                                              \
		if (!fake_initialized) {                                                                                       \
			return NVML_ERROR_UNINITIALIZED;                                                                           \
		}                                                                                                              \
	} while (0)

struct nvmlDevice {
	int gpu, mig; // mig is below 0 for a whole GPU.
};

// How often the library is initialized, and what it has found then.
extern int fake_initialized, fake_count;

// fake_driver writes the version of the driver: that in the name of the library's file, as that of a driver's, or else
// FAKE_DRIVER.
void fake_driver(char *version, size_t size);

// fake_device returns the handle of a GPU, or of a MIG device of it if mig is not below 0.
nvmlDevice fake_device(int gpu, int mig);

// fake_part finds the instances of a MIG device, by its number; returns 0 if there is none.
int fake_part(nvmlDevice device, struct fake_instance *instance, struct fake_compute *compute);

// fake_profile_name writes the name of a MIG device, such as 1g.10gb.
void fake_profile_name(const struct fake_profile *profile, const struct fake_compute *compute, char *name, size_t size);

// The handle of a GPU instance; it stays valid.
struct nvmlGpuInstance {
	int gpu;
	unsigned id;
};

// MAX_ID bounds the IDs of GPU instances.
#define MAX_ID 15

// fake_instance_handle returns the handle of a GPU instance.
nvmlGpuInstance fake_instance_handle(int gpu, unsigned id);

// fake_instance_find returns the instance of this ID, NULL if there is none.
struct fake_instance *fake_instance_find(struct fake_layout *layout, unsigned id);

// fake_events_start makes events that were raised before of no concern.
void fake_events_start(void);

#endif
