// The part of libnvidia-ml.so.1 that has the MIG devices of the layout, which is in a file that all processes share.
#define _GNU_SOURCE
#include "device.h"

#include <stdio.h>

void fake_profile_name(
	const struct fake_profile *profile, const struct fake_compute *compute, char *name, size_t size) {
	const unsigned long long gib = 1024ULL * 1024 * 1024;
	unsigned long long total = (fake_model()->memory + gib - 1) / gib;
	unsigned long long parts = profile->memory * 8ULL * 1024 * 1024;
	unsigned eighths = (unsigned)((parts + fake_model()->memory - 1) / fake_model()->memory);
	char part[16] = "";
	if (compute->slices != profile->slices) {
		snprintf(part, sizeof part, "%uc.", compute->slices);
	}
	snprintf(name, size, "%s%ug.%llugb%s", part, profile->slices, total * eighths / 8,
	         profile->number == 7 ? "+me" : "");
}

int fake_part(nvmlDevice device, struct fake_instance *instance, struct fake_compute *compute) {
	struct fake_layout layout[MAX_GPUS];
	int number = 0;
	if (device->mig < 0) {
		return 0;
	}
	fake_layout_read(layout);
	for (unsigned i = 0; i < layout[device->gpu].count; i++) {
		*instance = layout[device->gpu].instance[i];
		for (unsigned c = 0; c < instance->count; c++) {
			if (number++ == device->mig) {
				*compute = instance->compute[c];
				return 1;
			}
		}
	}
	return 0;
}

int nvmlDeviceGetMigMode(nvmlDevice device, unsigned *current, unsigned *pending) {
	struct fake_layout layout[MAX_GPUS];
	FAULT(device->gpu);
	if (!fake_model()->profiles) {
		return NVML_ERROR_NOT_SUPPORTED;
	}
	fake_layout_read(layout);
	*current = *pending = (unsigned)layout[device->gpu].enabled;
	return NVML_SUCCESS;
}

int nvmlDeviceSetMigMode(nvmlDevice device, unsigned mode, int *activation) {
	struct fake_layout layout[MAX_GPUS];
	FAULT(device->gpu);
	*activation = NVML_SUCCESS;
	if (!fake_model()->profiles) {
		return NVML_ERROR_NOT_SUPPORTED;
	}
	int lock = fake_layout_lock();
	fake_layout_read(layout);
	if (!mode && layout[device->gpu].count > 0) {
		fake_layout_write(lock, NULL, 0);
		return NVML_ERROR_IN_USE;
	}
	layout[device->gpu].enabled = mode != 0;
	return fake_layout_write(lock, layout, fake_count) ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

int nvmlDeviceGetMaxMigDeviceCount(nvmlDevice device, unsigned *count) {
	FAULT(device->gpu);
	*count = fake_model()->profiles ? MAX_MIG : 0;
	return NVML_SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice device, unsigned index, nvmlDevice *mig) {
	struct fake_instance instance;
	struct fake_compute compute;
	FAULT(device->gpu);
	if (index >= MAX_MIG) {
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	*mig = fake_device(device->gpu, (int)index);
	return fake_part(*mig, &instance, &compute) ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

int nvmlDeviceIsMigDeviceHandle(nvmlDevice device, unsigned *is) {
	FAULT(device->gpu);
	*is = device->mig >= 0;
	return NVML_SUCCESS;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice mig, nvmlDevice *device) {
	FAULT(mig->gpu);
	if (mig->mig < 0) {
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	*device = fake_device(mig->gpu, -1);
	return NVML_SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(nvmlDevice device, unsigned *id) {
	struct fake_instance instance;
	struct fake_compute compute;
	FAULT(device->gpu);
	if (!fake_part(device, &instance, &compute)) {
		return NVML_ERROR_NOT_FOUND;
	}
	*id = instance.id;
	return NVML_SUCCESS;
}

int nvmlDeviceGetComputeInstanceId(nvmlDevice device, unsigned *id) {
	struct fake_instance instance;
	struct fake_compute compute;
	FAULT(device->gpu);
	if (!fake_part(device, &instance, &compute)) {
		return NVML_ERROR_NOT_FOUND;
	}
	*id = compute.id;
	return NVML_SUCCESS;
}

int nvmlDeviceGetAttributes_v2(nvmlDevice device, nvmlDeviceAttributes *attributes) {
	struct fake_instance instance;
	struct fake_compute compute;
	FAULT(device->gpu);
	if (!fake_part(device, &instance, &compute)) {
		return NVML_ERROR_NOT_SUPPORTED;
	}
	const struct fake_profile *of = &fake_model()->profiles[instance.profile];
	*attributes = (nvmlDeviceAttributes){
		of->multiprocessors * compute.slices / of->slices, of->copy, of->decoder, 0, of->jpeg, of->ofa,
		of->slices, compute.slices, of->memory,
	};
	return NVML_SUCCESS;
}
