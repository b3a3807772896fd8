// The part of libnvidia-ml.so.1 that creates and destroys compute instances.
#define _GNU_SOURCE
#include "device.h"

#define COMPUTE_PROFILES 8U

struct nvmlComputeInstance {
	nvmlGpuInstance in;
	unsigned id;
};

static struct nvmlComputeInstance computes[MAX_GPUS][MAX_ID][MAX_MIG];

static nvmlComputeInstance compute_handle(nvmlGpuInstance in, unsigned id) {
	computes[in->gpu][in->id][id] = (struct nvmlComputeInstance){in, id};
	return &computes[in->gpu][in->id][id];
}

// compute_slices are the slices of a profile of compute instances, by its number, which is also its ID.
static const unsigned compute_slices[COMPUTE_PROFILES] = {1, 2, 3, 4, 7, 0, 0, 0};

static unsigned compute_number(unsigned slices) {
	unsigned number = 0;
	while (compute_slices[number] != slices) {
		number++;
	}
	return number;
}

// The slices of a GPU instance that its compute instances have, as a mask.
static unsigned slices_taken(const struct fake_instance *of) {
	unsigned taken = 0;
	for (unsigned c = 0; c < of->count; c++) {
		taken |= ((1U << of->compute[c].slices) - 1) << of->compute[c].start;
	}
	return taken;
}

int nvmlGpuInstanceGetComputeInstanceProfileInfo(
	nvmlGpuInstance in, unsigned number, unsigned engine, nvmlComputeInstanceProfileInfo *info) {
	struct fake_layout layout[MAX_GPUS];
	FAULT(in->gpu);
	if (number >= COMPUTE_PROFILES || engine > 0) {
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	fake_layout_read(layout);
	const struct fake_instance *one = fake_instance_find(&layout[in->gpu], in->id);
	if (!one) {
		return NVML_ERROR_NOT_FOUND;
	}
	const struct fake_profile *of = &fake_model()->profiles[one->profile];
	unsigned slices = compute_slices[number];
	if (!slices || slices > of->slices) {
		return NVML_ERROR_NOT_SUPPORTED;
	}
	*info = (nvmlComputeInstanceProfileInfo){
		number, slices, of->slices / slices, of->multiprocessors * slices / of->slices, of->copy, of->decoder, 0,
		of->jpeg, of->ofa,
	};
	return NVML_SUCCESS;
}

int nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance in, unsigned number, nvmlComputeInstance *created) {
	struct fake_layout layout[MAX_GPUS];
	FAULT(in->gpu);
	int lock = fake_layout_lock();
	fake_layout_read(layout);
	struct fake_instance *one = fake_instance_find(&layout[in->gpu], in->id);
	unsigned slices = number < COMPUTE_PROFILES ? compute_slices[number] : 0;
	if (!one || !slices) {
		fake_layout_write(lock, NULL, 0);
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	unsigned all = fake_model()->profiles[one->profile].slices, taken = slices_taken(one), id = 0;
	for (unsigned start = 0; start + slices <= all; start++) {
		if (taken & ((1U << slices) - 1) << start) {
			continue;
		}
		for (unsigned c = 0; c < one->count; c++) {
			id = one->compute[c].id >= id ? one->compute[c].id + 1 : id;
		}
		one->compute[one->count++] = (struct fake_compute){id, slices, start};
		*created = compute_handle(fake_instance_handle(in->gpu, in->id), id);
		return fake_layout_write(lock, layout, fake_count) ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
	}
	fake_layout_write(lock, NULL, 0);
	return NVML_ERROR_INSUFFICIENT_RESOURCES;
}

int nvmlGpuInstanceGetComputeInstances(
	nvmlGpuInstance in, unsigned number, nvmlComputeInstance *found, unsigned *count) {
	struct fake_layout layout[MAX_GPUS];
	FAULT(in->gpu);
	fake_layout_read(layout);
	const struct fake_instance *one = fake_instance_find(&layout[in->gpu], in->id);
	*count = 0;
	for (unsigned c = 0; one && c < one->count; c++) {
		if (compute_number(one->compute[c].slices) == number) {
			found[(*count)++] = compute_handle(fake_instance_handle(in->gpu, in->id), one->compute[c].id);
		}
	}
	return one ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

// find_compute returns the compute instance of this ID, NULL if there is none.
static struct fake_compute *find_compute(struct fake_instance *one, unsigned id) {
	for (unsigned c = 0; one && c < one->count; c++) {
		if (one->compute[c].id == id) {
			return &one->compute[c];
		}
	}
	return NULL;
}

int nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance in, unsigned id, nvmlComputeInstance *found) {
	struct fake_layout layout[MAX_GPUS];
	FAULT(in->gpu);
	fake_layout_read(layout);
	if (!find_compute(fake_instance_find(&layout[in->gpu], in->id), id)) {
		return NVML_ERROR_NOT_FOUND;
	}
	*found = compute_handle(fake_instance_handle(in->gpu, in->id), id);
	return NVML_SUCCESS;
}

int nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance compute, nvmlComputeInstanceInfo *info) {
	struct fake_layout layout[MAX_GPUS];
	int gpu = compute->in->gpu;
	FAULT(gpu);
	fake_layout_read(layout);
	const struct fake_compute *one = find_compute(fake_instance_find(&layout[gpu], compute->in->id), compute->id);
	if (!one) {
		return NVML_ERROR_NOT_FOUND;
	}
	*info = (nvmlComputeInstanceInfo){
		fake_device(gpu, -1), compute->in, one->id, compute_number(one->slices), {one->start, one->slices},
	};
	return NVML_SUCCESS;
}

int nvmlComputeInstanceDestroy(nvmlComputeInstance compute) {
	struct fake_layout layout[MAX_GPUS];
	int gpu = compute->in->gpu;
	FAULT(gpu);
	int lock = fake_layout_lock();
	fake_layout_read(layout);
	struct fake_instance *in = fake_instance_find(&layout[gpu], compute->in->id);
	struct fake_compute *one = find_compute(in, compute->id);
	if (!one) {
		fake_layout_write(lock, NULL, 0);
		return NVML_ERROR_NOT_FOUND;
	}
	*one = in->compute[--in->count];
	return fake_layout_write(lock, layout, fake_count) ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}
