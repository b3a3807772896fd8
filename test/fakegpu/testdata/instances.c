// The part of libnvidia-ml.so.1 that creates and destroys GPU instances.
#define _GNU_SOURCE
#include "device.h"

#define PROFILES 18U
#define MEMORY_SLICES 8U

static struct nvmlGpuInstance instances[MAX_GPUS][MAX_ID];

nvmlGpuInstance fake_instance_handle(int gpu, unsigned id) {
	instances[gpu][id] = (struct nvmlGpuInstance){gpu, id};
	return &instances[gpu][id];
}

// numbered returns the profile of this number in NVML's interface, NULL if the model has none.
static const struct fake_profile *numbered(unsigned number) {
	const struct fake_model *model = fake_model();
	for (unsigned i = 0; i < model->profile_count; i++) {
		if (model->profiles[i].number == number) {
			return &model->profiles[i];
		}
	}
	return NULL;
}

static const struct fake_profile *identified(unsigned id) {
	const struct fake_model *model = fake_model();
	for (unsigned i = 0; i < model->profile_count; i++) {
		if (model->profiles[i].id == id) {
			return &model->profiles[i];
		}
	}
	return NULL;
}

struct fake_instance *fake_instance_find(struct fake_layout *layout, unsigned id) {
	for (unsigned i = 0; i < layout->count; i++) {
		if (layout->instance[i].id == id) {
			return &layout->instance[i];
		}
	}
	return NULL;
}

int nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice device, unsigned number, nvmlGpuInstanceProfileInfo *info) {
	FAULT(device->gpu);
	if (number >= PROFILES) {
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	const struct fake_profile *of = numbered(number);
	if (!of) {
		return NVML_ERROR_NOT_SUPPORTED;
	}
	*info = (nvmlGpuInstanceProfileInfo){
		of->id, 0, of->slices, of->count, of->multiprocessors, of->copy, of->decoder, 0, of->jpeg, of->ofa, of->memory,
	};
	return NVML_SUCCESS;
}

// free_places returns the starts at which a profile fits, as a mask.
static unsigned free_places(const struct fake_layout *layout, const struct fake_profile *profile) {
	const unsigned all_slices = 7;
	unsigned taken = 0, slices = profile->slices, same = 0, places = 0;
	for (unsigned i = 0; i < layout->count; i++) {
		const struct fake_profile *of = &fake_model()->profiles[layout->instance[i].profile];
		taken |= ((1U << of->size) - 1) << layout->instance[i].start;
		slices += of->slices;
		same += of == profile;
	}
	for (unsigned start = 0; start < MEMORY_SLICES; start++) {
		unsigned needed = ((1U << profile->size) - 1) << start;
		if (profile->starts >> start & 1 && !(taken & needed) && slices <= all_slices && same < profile->count) {
			places |= 1U << start;
		}
	}
	return places;
}

int nvmlDeviceGetGpuInstancePossiblePlacements_v2(
	nvmlDevice device, unsigned id, nvmlPlacement *placements, unsigned *count) {
	FAULT(device->gpu);
	const struct fake_profile *profile = identified(id);
	if (!profile) {
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	*count = 0;
	for (unsigned start = 0; start < MEMORY_SLICES; start++) {
		if (profile->starts >> start & 1) {
			if (placements) {
				placements[*count] = (nvmlPlacement){start, profile->size};
			}
			++*count;
		}
	}
	return NVML_SUCCESS;
}

// create adds an instance at one of the places of a mask, the last that is free.
static int create(nvmlDevice device, unsigned id, unsigned mask, nvmlGpuInstance *created) {
	struct fake_layout layout[MAX_GPUS];
	const struct fake_profile *profile = identified(id);
	if (!profile) {
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	int lock = fake_layout_lock();
	fake_layout_read(layout);
	struct fake_layout *of = &layout[device->gpu];
	unsigned places = free_places(of, profile) & mask;
	if (!of->enabled || !places || of->count == MAX_MIG) {
		fake_layout_write(lock, NULL, 0);
		return of->enabled ? NVML_ERROR_INSUFFICIENT_RESOURCES : NVML_ERROR_NOT_SUPPORTED;
	}
	// IDs begin at one for each size.
	unsigned first = profile->size == 8 ? 0 : profile->size == 4 ? 1 : profile->size == 2 ? 3 : 7;
	while (fake_instance_find(of, first)) {
		first++;
	}
	unsigned start = 31U - (unsigned)__builtin_clz(places);
	of->instance[of->count++] = (struct fake_instance){
		.id = first, .profile = (unsigned)(profile - fake_model()->profiles), .start = start};
	*created = fake_instance_handle(device->gpu, first);
	return fake_layout_write(lock, layout, fake_count) ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

int nvmlDeviceCreateGpuInstance(nvmlDevice device, unsigned id, nvmlGpuInstance *created) {
	FAULT(device->gpu);
	return create(device, id, ~0U, created);
}

int nvmlDeviceCreateGpuInstanceWithPlacement(
	nvmlDevice device, unsigned id, const nvmlPlacement *placement, nvmlGpuInstance *created) {
	FAULT(device->gpu);
	return create(device, id, 1U << placement->start, created);
}

int nvmlDeviceGetGpuInstances(nvmlDevice device, unsigned id, nvmlGpuInstance *found, unsigned *count) {
	struct fake_layout layout[MAX_GPUS];
	FAULT(device->gpu);
	fake_layout_read(layout);
	*count = 0;
	for (unsigned i = 0; i < layout[device->gpu].count; i++) {
		const struct fake_instance *one = &layout[device->gpu].instance[i];
		if (fake_model()->profiles[one->profile].id == id) {
			found[(*count)++] = fake_instance_handle(device->gpu, one->id);
		}
	}
	return NVML_SUCCESS;
}

int nvmlDeviceGetGpuInstanceById(nvmlDevice device, unsigned id, nvmlGpuInstance *found) {
	struct fake_layout layout[MAX_GPUS];
	FAULT(device->gpu);
	fake_layout_read(layout);
	if (!fake_instance_find(&layout[device->gpu], id)) {
		return NVML_ERROR_NOT_FOUND;
	}
	*found = fake_instance_handle(device->gpu, id);
	return NVML_SUCCESS;
}

int nvmlGpuInstanceGetInfo(nvmlGpuInstance in, nvmlGpuInstanceInfo *info) {
	struct fake_layout layout[MAX_GPUS];
	FAULT(in->gpu);
	fake_layout_read(layout);
	const struct fake_instance *one = fake_instance_find(&layout[in->gpu], in->id);
	if (!one) {
		return NVML_ERROR_NOT_FOUND;
	}
	const struct fake_profile *of = &fake_model()->profiles[one->profile];
	*info = (nvmlGpuInstanceInfo){fake_device(in->gpu, -1), one->id, of->id, {one->start, of->size}};
	return NVML_SUCCESS;
}

int nvmlGpuInstanceDestroy(nvmlGpuInstance in) {
	struct fake_layout layout[MAX_GPUS];
	FAULT(in->gpu);
	int lock = fake_layout_lock();
	fake_layout_read(layout);
	struct fake_layout *of = &layout[in->gpu];
	struct fake_instance *one = fake_instance_find(of, in->id);
	if (!one || one->count > 0) {
		fake_layout_write(lock, NULL, 0);
		return one ? NVML_ERROR_IN_USE : NVML_ERROR_NOT_FOUND;
	}
	*one = of->instance[--of->count];
	return fake_layout_write(lock, layout, fake_count) ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}
