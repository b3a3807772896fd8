// A stand-in for libnvidia-ml.so.1: what programs need to list GPUs, and the state of the GPUs that the health agent
// reads. The values of the state are words of FAKE_NVML.
#define _GNU_SOURCE
#include "device.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int fake_initialized, fake_count;

static struct nvmlDevice whole[MAX_GPUS], part[MAX_GPUS][MAX_MIG];

nvmlDevice fake_device(int gpu, int mig) {
	nvmlDevice device = mig < 0 ? &whole[gpu] : &part[gpu][mig];
	*device = (struct nvmlDevice){gpu, mig};
	return device;
}

void fake_driver(char *version, size_t size) {
	char path[PATH_MAX];
	const char *end = ".so.", *name = NULL;
	Dl_info self;
	if (dladdr((void *)fake_driver, &self) && realpath(self.dli_fname, path) && (name = strstr(path, end))) {
		name += strlen(end);
	}
	snprintf(version, size, "%s", name && strchr(name, '.') ? name : FAKE_DRIVER);
}

int nvmlInit_v2(void) {
	int mig[MAX_GPUS], fault;
	fake_open("FAKE_HANDLES");
	if ((fault = fake_fault(ENV, __func__, -1))) {
		return fault;
	}
	if (!fake_initialized++) {
		fake_events_start();
	}
	fake_count = fake_gpus(mig);
	return NVML_SUCCESS;
}

int nvmlInit(void) { return nvmlInit_v2(); }

int nvmlInitWithFlags(unsigned flags) {
	(void)flags;
	return nvmlInit_v2();
}

int nvmlShutdown(void) {
	FAULT(-1);
	fake_initialized--;
	return NVML_SUCCESS;
}

const char *nvmlErrorString(int code) {
	switch (code) {
	case NVML_SUCCESS: return "Success";
	case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
	case 4: return "Insufficient Permissions";
	case NVML_ERROR_NOT_FOUND: return "Not Found";
	case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
	case NVML_ERROR_TIMEOUT: return "Timeout";
	case NVML_ERROR_FUNCTION_NOT_FOUND: return "Function Not Found";
	case 15: return "GPU is lost";
	case NVML_ERROR_LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
	case NVML_ERROR_IN_USE: return "In use by another client";
	case NVML_ERROR_INSUFFICIENT_RESOURCES: return "Insufficient Resources";
	default: return "Unknown Error";
	}
}

int nvmlSystemGetDriverVersion(char *version, unsigned size) {
	FAULT(-1);
	fake_driver(version, size);
	return NVML_SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
	FAULT(-1);
	*count = (unsigned)fake_count;
	return NVML_SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice *device) {
	FAULT((int)index);
	if (index >= (unsigned)fake_count) {
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	*device = fake_device((int)index, -1);
	return NVML_SUCCESS;
}

int nvmlDeviceGetName(nvmlDevice device, char *name, unsigned size) {
	struct fake_instance instance;
	struct fake_compute compute;
	char profile[64] = " MIG ";
	FAULT(device->gpu);
	if (!fake_part(device, &instance, &compute)) {
		profile[0] = 0;
	} else {
		fake_profile_name(&fake_model()->profiles[instance.profile], &compute, profile + 5, sizeof profile - 5);
	}
	snprintf(name, size, "%s%s", fake_model()->name, profile);
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
	pci->pciDeviceId = fake_model()->device << 16 | 0x10DE;
	pci->pciSubSystemId = fake_model()->subsystem << 16 | 0x10DE;
	return NVML_SUCCESS;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *address, nvmlDevice *device) {
	char bus[16];
	for (int gpu = 0; gpu < fake_count; gpu++) {
		fake_bus(gpu, bus, sizeof bus);
		if (strcasecmp(bus, address) == 0 || (!strncmp(address, "0000", 4) && !strcasecmp(bus, address + 4))) {
			FAULT(gpu);
			*device = fake_device(gpu, -1);
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
	unsigned links = (unsigned)fake_value(ENV, "nvlinks", device->gpu, fake_model()->nvlinks);
	if (link >= links) {
		return links ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED;
	}
	*active = link >= (unsigned)fake_value(ENV, "nvlinks.down", device->gpu, 0);
	return NVML_SUCCESS;
}
