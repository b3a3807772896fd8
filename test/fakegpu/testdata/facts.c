// The part of libnvidia-ml.so.1 that says what a GPU or a MIG device is, and its events.
#define _GNU_SOURCE
#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define XID_EVENT 0x8ULL
#define ECC_EVENTS 0x3ULL
#define NO_INSTANCE 0xFFFFFFFFU

int nvmlSystemGetNVMLVersion(char *version, unsigned size) {
	char driver[64];
	FAULT(-1);
	fake_driver(driver, sizeof driver);
	// That of CUDA comes first.
	snprintf(version, size, "%d.%s", FAKE_CUDA_VERSION / 1000, driver);
	return NVML_SUCCESS;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
	FAULT(-1);
	*version = FAKE_CUDA_VERSION;
	return NVML_SUCCESS;
}

int nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

int nvmlDeviceGetIndex(nvmlDevice device, unsigned *index) {
	FAULT(device->gpu);
	*index = (unsigned)(device->mig < 0 ? device->gpu : device->mig);
	return NVML_SUCCESS;
}

int nvmlDeviceGetMinorNumber(nvmlDevice device, unsigned *minor) {
	FAULT(device->gpu);
	*minor = (unsigned)device->gpu;
	return NVML_SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice *device) {
	struct fake_layout layout[MAX_GPUS];
	char text[64];
	FAULT(-1);
	fake_layout_read(layout);
	for (int gpu = 0; gpu < fake_count; gpu++) {
		int mig[MAX_GPUS];
		fake_gpus(mig);
		for (int part = -1; part < mig[gpu] || part < 0; part++) {
			fake_uuid_text(gpu, part, text, sizeof text);
			if (strcmp(text, uuid) == 0) {
				*device = fake_device(gpu, part);
				return NVML_SUCCESS;
			}
		}
	}
	return NVML_ERROR_NOT_FOUND;
}

int nvmlDeviceGetMemoryInfo(nvmlDevice device, nvmlMemory *memory) {
	struct fake_instance instance;
	struct fake_compute compute;
	FAULT(device->gpu);
	memory->total = fake_model()->memory;
	if (fake_part(device, &instance, &compute)) {
		memory->total = fake_model()->profiles[instance.profile].memory * 1024ULL * 1024;
	}
	memory->used = 0;
	memory->free = memory->total;
	return NVML_SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(nvmlDevice device, nvmlMemory_v2 *memory) {
	nvmlMemory one;
	int code = nvmlDeviceGetMemoryInfo(device, &one);
	if (code == NVML_SUCCESS) {
		*memory = (nvmlMemory_v2){memory->version, one.total, 0, one.free, one.used};
	}
	return code;
}

int nvmlDeviceGetCudaComputeCapability(nvmlDevice device, int *major, int *minor) {
	FAULT(device->gpu);
	*major = (int)fake_model()->major;
	*minor = (int)fake_model()->minor;
	return NVML_SUCCESS;
}

int nvmlDeviceGetArchitecture(nvmlDevice device, unsigned *architecture) {
	FAULT(device->gpu);
	*architecture = fake_model()->architecture;
	return NVML_SUCCESS;
}

int nvmlDeviceGetBrand(nvmlDevice device, unsigned *brand) {
	const unsigned nvidia = 14;
	FAULT(device->gpu);
	*brand = nvidia;
	return NVML_SUCCESS;
}

// No GPU is attached to a fabric, and none shares its memory with the CPU.
#define UNSUPPORTED(function)                                                                                          \
	int function(nvmlDevice device, void *value) {                                                                     \
		(void)value;                                                                                                   \
		FAULT(device->gpu);                                                                                            \
		return NVML_ERROR_NOT_SUPPORTED;                                                                               \
	}

UNSUPPORTED(nvmlDeviceGetGpuFabricInfo)
UNSUPPORTED(nvmlDeviceGetGpuFabricInfoV)
UNSUPPORTED(nvmlDeviceGetAddressingMode)

int nvmlDeviceGetTopologyCommonAncestor(nvmlDevice one, nvmlDevice other, unsigned *level) {
	const unsigned system = 50;
	FAULT(one->gpu);
	*level = one->gpu == other->gpu ? 0 : system;
	return NVML_SUCCESS;
}

// Links end at a switch.
int nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice device, unsigned link, nvmlPciInfo *pci) {
	FAULT(device->gpu);
	memset(pci, 0, sizeof *pci);
	pci->bus = 0xC0 + link % 4;
	snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", pci->bus);
	return NVML_SUCCESS;
}

// Events are lines of FAKE_XID: GPU, XID and, of a MIG device, the IDs of its instances.
struct event_set {
	unsigned long long registered[MAX_GPUS];
	long line;
};

static long first_line;

// event_line reads a line of the file, from 0; returns 0 if there is none yet.
static int event_line(long number, char *line, size_t size) {
	char path[4096];
	fake_path("FAKE_XID", path, sizeof path);
	FILE *file = fopen(path, "r");
	long at = -1;
	while (file && at < number && fgets(line, (int)size, file) && strchr(line, '\n')) {
		at++;
	}
	if (file) {
		fclose(file);
	}
	return at == number;
}

void fake_events_start(void) {
	char line[256];
	while (event_line(first_line, line, sizeof line)) {
		first_line++;
	}
}

int nvmlEventSetCreate(struct event_set **set) {
	FAULT(-1);
	*set = calloc(1, sizeof **set);
	(*set)->line = first_line;
	return NVML_SUCCESS;
}

int nvmlEventSetFree(struct event_set *set) {
	FAULT(-1);
	free(set);
	return NVML_SUCCESS;
}

int nvmlDeviceGetSupportedEventTypes(nvmlDevice device, unsigned long long *types) {
	FAULT(device->gpu);
	*types = XID_EVENT | ECC_EVENTS;
	return NVML_SUCCESS;
}

int nvmlDeviceRegisterEvents(nvmlDevice device, unsigned long long types, struct event_set *set) {
	FAULT(device->gpu);
	set->registered[device->gpu] |= types;
	return NVML_SUCCESS;
}

int nvmlEventSetWait_v2(struct event_set *set, nvmlEventData *data, unsigned milliseconds) {
	const unsigned step = 20;
	char line[256];
	FAULT(-1);
	for (unsigned waited = 0;; waited += step) {
		while (event_line(set->line, line, sizeof line)) {
			int gpu = 0;
			*data = (nvmlEventData){NULL, XID_EVENT, 0, NO_INSTANCE, NO_INSTANCE};
			set->line++;
			sscanf(line, "%d %llu %u %u", &gpu, &data->data, &data->gpuInstance, &data->computeInstance);
			if (gpu >= 0 && gpu < fake_count && set->registered[gpu] & XID_EVENT) {
				data->device = fake_device(gpu, -1);
				return NVML_SUCCESS;
			}
		}
		if (waited >= milliseconds) {
			return NVML_ERROR_TIMEOUT;
		}
		nanosleep(&(struct timespec){0, step * 1000000L}, NULL);
	}
}

int nvmlEventSetWait(struct event_set *set, nvmlEventData *data, unsigned milliseconds) {
	return nvmlEventSetWait_v2(set, data, milliseconds);
}
