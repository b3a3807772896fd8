// A stand-in for libnvidia-ml.so.1: what nvidia-smi needs to list GPUs and MIG devices, and the state of the GPUs that
// the health agent reads. The values of the state are words of FAKE_NVML.
#define _GNU_SOURCE
#include "fake.h"
#include "nvml.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

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
	fake_open("FAKE_HANDLES");
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

int nvmlDeviceGetHandleByPciBusId_v2(const char *address, nvmlDevice *device) {
	char bus[16];
	for (int gpu = 0; gpu < gpus; gpu++) {
		fake_bus(gpu, bus, sizeof bus);
		if (strcasecmp(bus, address) == 0) {
			FAULT(gpu);
			*device = &whole[gpu];
			return NVML_SUCCESS;
		}
	}
	return NVML_ERROR_NOT_FOUND;
}

// The fields by their number, with the word for their value.
static const struct {
	unsigned id, type;
	const char *word;
} fields[] = {
	{4, 3, "uncorrected"},    {142, 1, "remap.correctable"}, {143, 1, "remap.uncorrectable"}, {144, 1, "remap.pending"},
	{145, 1, "remap.failed"}, {230, 1, "action"},            {270, 3, "heat.nanos"},          {271, 3, "brake.nanos"},
};

int nvmlDeviceGetFieldValues(nvmlDevice device, int count, nvmlFieldValue *values) {
	FAULT(device->gpu);
	for (int i = 0; i < count; i++) {
		values[i].code = NVML_ERROR_NOT_SUPPORTED;
		for (size_t f = 0; f < sizeof fields / sizeof *fields; f++) {
			long value;
			if (fields[f].id != values[i].id || (value = fake_value(ENV, fields[f].word, device->gpu, 0)) < 0) {
				continue;
			}
			values[i].code = NVML_SUCCESS;
			values[i].type = fields[f].type;
			if (fields[f].type == 1) {
				// The other half is not defined.
				values[i].value = ~0ULL;
				memcpy(&values[i].value, &(unsigned){(unsigned)value}, sizeof(unsigned));
			} else {
				values[i].value = (unsigned long long)value;
			}
		}
	}
	return NVML_SUCCESS;
}

int nvmlDeviceGetSramEccErrorStatus(nvmlDevice device, nvmlEccSramErrorStatus *status) {
	FAULT(device->gpu);
	if (status->version != (sizeof *status | 1 << 24)) {
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	}
	status->exceeded = (unsigned)fake_value(ENV, "sram", device->gpu, 0);
	return NVML_SUCCESS;
}

int nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice device, unsigned long long *reasons) {
	FAULT(device->gpu);
	*reasons = (unsigned long long)fake_value(ENV, "throttle", device->gpu, 1);
	return NVML_SUCCESS;
}

#define VALUE(function, word, fallback)                                                                                \
	int function(nvmlDevice device, unsigned *value) {                                                                 \
		FAULT(device->gpu);                                                                                            \
		*value = (unsigned)fake_value(ENV, word, device->gpu, fallback);                                               \
		return NVML_SUCCESS;                                                                                           \
	}

VALUE(nvmlDeviceGetCurrPcieLinkWidth, "width", 16)
VALUE(nvmlDeviceGetMaxPcieLinkWidth, "width.max", 16)
VALUE(nvmlDeviceGetCurrPcieLinkGeneration, "generation", 4)
VALUE(nvmlDeviceGetMaxPcieLinkGeneration, "generation.max", 4)

int nvmlDeviceGetNvLinkState(nvmlDevice device, unsigned link, unsigned *active) {
	FAULT(device->gpu);
	if (link >= (unsigned)fake_value(ENV, "nvlinks", device->gpu, 12)) {
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	*active = link >= (unsigned)fake_value(ENV, "nvlinks.down", device->gpu, 0);
	return NVML_SUCCESS;
}
