// A stand-in for libnvidia-ml.so.1: what nvidia-smi needs to list GPUs and MIG devices.
#define _GNU_SOURCE
#include "fake.h"
#include "nvml.h"

#include <stdio.h>
#include <string.h>

#define ENV "FAKE_NVML"
#define FAULT(gpu)                                                                                                     \
	do {                                                                                                               \
		int fault = fake_fault(ENV, __func__, gpu);                                                                    \
		if (fault) {                                                                                                   \
			return fault;                                                                                              \
		}                                                                                                              \
		if (!initialized) {                                                                                            \
			return NVML_ERROR_UNINITIALIZED;                                                                           \
		}                                                                                                              \
	} while (0)

struct nvmlDevice {
	int gpu, mig; // mig is below 0 for a whole GPU.
};

static struct nvmlDevice whole[MAX_GPUS], part[MAX_GPUS][MAX_MIG];
static int mig_devices[MAX_GPUS], gpus, initialized;

int nvmlInit_v2(void) {
	initialized = 1;
	FAULT(-1);
	gpus = fake_gpus(mig_devices);
	for (int gpu = 0; gpu < gpus; gpu++) {
		whole[gpu] = (struct nvmlDevice){gpu, -1};
		for (int i = 0; i < MAX_MIG; i++) {
			part[gpu][i] = (struct nvmlDevice){gpu, i};
		}
	}
	return NVML_SUCCESS;
}

int nvmlShutdown(void) {
	FAULT(-1);
	initialized = 0;
	return NVML_SUCCESS;
}

const char *nvmlErrorString(int code) {
	switch (code) {
	case NVML_SUCCESS: return "Success";
	case 4: return "Insufficient Permissions";
	case NVML_ERROR_NOT_FOUND: return "Not Found";
	case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
	case 15: return "GPU is lost";
	case NVML_ERROR_LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
	default: return "Unknown Error";
	}
}

int nvmlSystemGetDriverVersion(char *version, unsigned size) {
	FAULT(-1);
	snprintf(version, size, "%s", FAKE_DRIVER);
	return NVML_SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
	FAULT(-1);
	*count = (unsigned)gpus;
	return NVML_SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice *device) {
	FAULT((int)index);
	if (index >= (unsigned)gpus) {
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	*device = &whole[index];
	return NVML_SUCCESS;
}

int nvmlDeviceGetName(nvmlDevice device, char *name, unsigned size) {
	FAULT(device->gpu);
	snprintf(name, size, "%s%s", FAKE_NAME, device->mig < 0 ? "" : " MIG 1g.5gb");
	return NVML_SUCCESS;
}

int nvmlDeviceGetUUID(nvmlDevice device, char *uuid, unsigned size) {
	FAULT(device->gpu);
	fake_uuid_text(device->gpu, device->mig, uuid, size);
	return NVML_SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(nvmlDevice device, nvmlPciInfo *pci) {
	char bus[16];
	FAULT(device->gpu);
	memset(pci, 0, sizeof *pci);
	fake_bus(device->gpu, bus, sizeof bus);
	snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%s", bus);
	snprintf(pci->busId, sizeof pci->busId, "0000%s", bus);
	pci->bus = 7 + (unsigned)device->gpu;
	return NVML_SUCCESS;
}

int nvmlDeviceGetMigMode(nvmlDevice device, unsigned *current, unsigned *pending) {
	FAULT(device->gpu);
	*current = *pending = mig_devices[device->gpu] >= 0;
	return NVML_SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(nvmlDevice device, unsigned *count) {
	FAULT(device->gpu);
	*count = MAX_MIG;
	return NVML_SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice device, unsigned index, nvmlDevice *mig) {
	FAULT(device->gpu);
	if ((int)index >= mig_devices[device->gpu]) {
		return NVML_ERROR_NOT_FOUND;
	}
	*mig = &part[device->gpu][index];
	return NVML_SUCCESS;
}
