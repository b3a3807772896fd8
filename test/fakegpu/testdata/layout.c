// The models of GPUs, and how they are partitioned.
#define _GNU_SOURCE
#include "fake.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static const struct fake_profile ampere[] = {
	{0, 19, 1, 4864, 14, 1, 0, 0, 0, 7, 0x7f, 1},
	{1, 14, 2, 9984, 28, 2, 1, 0, 0, 3, 0x15, 2},
	{2, 9, 3, 20096, 42, 3, 2, 0, 0, 2, 0x11, 4},
	{3, 5, 4, 20096, 56, 4, 2, 0, 0, 1, 0x01, 4},
	{4, 0, 7, 40192, 98, 7, 5, 1, 1, 1, 0x01, 8},
};

static const struct fake_profile hopper[] = {
	{0, 19, 1, 9856, 16, 1, 1, 1, 0, 7, 0x7f, 1},
	{7, 20, 1, 9856, 16, 1, 1, 1, 1, 1, 0x7f, 1},
	{9, 15, 1, 20096, 26, 1, 1, 1, 0, 4, 0x55, 2},
	{1, 14, 2, 20096, 32, 2, 2, 2, 0, 3, 0x15, 2},
	{2, 9, 3, 40448, 60, 3, 3, 3, 0, 2, 0x11, 4},
	{3, 5, 4, 40448, 64, 4, 4, 4, 0, 1, 0x01, 4},
	{4, 0, 7, 81152, 132, 8, 7, 7, 1, 1, 0x01, 8},
};

#define MIB (1024ULL * 1024)
#define COUNT(array) (sizeof array / sizeof *array)

static const struct fake_model models[] = {
	{"a100", "NVIDIA A100-SXM4-40GB", 40960 * MIB, 8, 0, 7, 0x20B0, 0x134F, 12, ampere, COUNT(ampere)},
	{"h100", "NVIDIA H100 80GB HBM3", 81559 * MIB, 9, 0, 9, 0x2330, 0x16C1, 18, hopper, COUNT(hopper)},
	{"t4", "Tesla T4", 15360 * MIB, 7, 5, 6, 0x1EB8, 0x12A2, 0, NULL, 0},
};

const struct fake_model *fake_model(void) {
	char copy[MAX_WORDS];
	if (fake_words("FAKE_MODEL", copy, sizeof copy)) {
		copy[strcspn(copy, SPACE)] = 0;
		for (size_t i = 0; i < COUNT(models); i++) {
			if (strcmp(models[i].word, copy) == 0) {
				return &models[i];
			}
		}
	}
	return models;
}

// listed returns the GPUs of FAKE_GPUS alone.
static int listed(int mig[MAX_GPUS]) {
	char copy[MAX_WORDS];
	int n = 0;
	if (!fake_words("FAKE_GPUS", copy, sizeof copy)) {
		snprintf(copy, sizeof copy, "gpu");
	}
	for (char *rest, *word = strtok_r(copy, SPACE, &rest); word && n < MAX_GPUS; word = strtok_r(NULL, SPACE, &rest)) {
		mig[n++] = strncmp(word, "mig", 3) == 0 ? atoi(word + 3) : -1;
	}
	return n;
}

int fake_gpus(int mig[MAX_GPUS]) {
	struct fake_layout layout[MAX_GPUS];
	int n = listed(mig);
	fake_layout_read(layout);
	for (int gpu = 0; gpu < n; gpu++) {
		mig[gpu] = layout[gpu].enabled ? 0 : -1;
		for (unsigned i = 0; i < layout[gpu].count; i++) {
			mig[gpu] += (int)layout[gpu].instance[i].count;
		}
	}
	return n;
}

// by_place orders instances by their places.
static int by_place(const void *a, const void *b) {
	return (int)((const struct fake_instance *)a)->start - (int)((const struct fake_instance *)b)->start;
}

void fake_layout_read(struct fake_layout layout[MAX_GPUS]) {
	int mig[MAX_GPUS], gpus = listed(mig), gpu;
	unsigned at, id, profile, start;
	char path[2 * MAX_WORDS], line[256];
	memset(layout, 0, MAX_GPUS * sizeof *layout);
	fake_state("FAKE_MIG", path, sizeof path);
	FILE *file = fopen(path, "r");
	for (gpu = 0; !file && gpu < gpus; gpu++) {
		layout[gpu].enabled = mig[gpu] >= 0;
		for (int i = 0; i < mig[gpu]; i++) {
			layout[gpu].instance[layout[gpu].count++] =
				(struct fake_instance){7 + (unsigned)i, 0, (unsigned)i, 1, {{0, 1, 0}}};
		}
	}
	while (file && fgets(line, sizeof line, file)) {
		struct fake_layout *of;
		if (sscanf(line, "mode %d", &gpu) == 1 && gpu < MAX_GPUS) {
			layout[gpu].enabled = 1;
		} else if (sscanf(line, "gpu %d %u %u %u", &gpu, &id, &profile, &start) == 4 && gpu < MAX_GPUS) {
			of = &layout[gpu];
			of->instance[of->count++] = (struct fake_instance){.id = id, .profile = profile, .start = start};
		} else if (sscanf(line, "compute %d %u %u %u %u", &gpu, &at, &id, &profile, &start) == 5 && gpu < MAX_GPUS) {
			struct fake_instance *parent = &layout[gpu].instance[at];
			parent->compute[parent->count++] = (struct fake_compute){id, profile, start};
		}
	}
	if (file) {
		fclose(file);
	}
	for (gpu = 0; gpu < MAX_GPUS; gpu++) {
		qsort(layout[gpu].instance, layout[gpu].count, sizeof *layout[gpu].instance, by_place);
	}
}

int fake_layout_lock(void) {
	char path[2 * MAX_WORDS];
	fake_state("FAKE_MIG.lock", path, sizeof path);
	int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (lock >= 0) {
		flock(lock, LOCK_EX);
	}
	return lock;
}

int fake_layout_write(int lock, const struct fake_layout layout[MAX_GPUS], int gpus) {
	char path[2 * MAX_WORDS], changed[2 * MAX_WORDS];
	int written = layout != NULL;
	fake_state("FAKE_MIG", path, sizeof path);
	fake_state("FAKE_MIG.new", changed, sizeof changed);
	FILE *file = layout ? fopen(changed, "w") : NULL;
	for (int gpu = 0; file && gpu < gpus; gpu++) {
		if (layout[gpu].enabled) {
			fprintf(file, "mode %d\n", gpu);
		}
		for (unsigned i = 0; i < layout[gpu].count; i++) {
			const struct fake_instance *one = &layout[gpu].instance[i];
			fprintf(file, "gpu %d %u %u %u\n", gpu, one->id, one->profile, one->start);
			for (unsigned c = 0; c < one->count; c++) {
				const struct fake_compute *part = &one->compute[c];
				fprintf(file, "compute %d %u %u %u %u\n", gpu, i, part->id, part->slices, part->start);
			}
		}
	}
	if (layout && (!file || fclose(file) != 0 || rename(changed, path) != 0)) {
		written = 0;
	}
	if (lock >= 0) {
		close(lock);
	}
	return written;
}
