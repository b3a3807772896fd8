// A stand-in for nvidia-smi: it loads libnvidia-ml.so.1 at run time, as the real one, and so works
// as well or as badly as that. Its exit codes are those of the real one: the codes of NVML.
#define _GNU_SOURCE
#include "fake.h"
#include "nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTIONS(X)                                                                                                   \
	X(nvmlInit_v2, (void))                                                                                             \
	X(nvmlShutdown, (void))                                                                                            \
	X(nvmlSystemGetDriverVersion, (char *, unsigned))                                                                  \
	X(nvmlDeviceGetCount_v2, (unsigned *))                                                                             \
	X(nvmlDeviceGetHandleByIndex_v2, (unsigned, nvmlDevice *))                                                         \
	X(nvmlDeviceGetName, (nvmlDevice, char *, unsigned))                                                               \
	X(nvmlDeviceGetUUID, (nvmlDevice, char *, unsigned))                                                               \
	X(nvmlDeviceGetPciInfo_v3, (nvmlDevice, nvmlPciInfo *))                                                            \
	X(nvmlDeviceGetMigMode, (nvmlDevice, unsigned *, unsigned *))                                                      \
	X(nvmlDeviceGetMaxMigDeviceCount, (nvmlDevice, unsigned *))                                                        \
	X(nvmlDeviceGetMigDeviceHandleByIndex, (nvmlDevice, unsigned, nvmlDevice *))                                       \
	X(nvmlDeviceGetCurrPcieLinkWidth, (nvmlDevice, unsigned *))                                                        \
	X(nvmlDeviceGetMaxPcieLinkWidth, (nvmlDevice, unsigned *))

#define DECLARE(name, arguments) static int(*name) arguments;
FUNCTIONS(DECLARE)
static const char *(*nvmlErrorString)(int);

static void quit(int code) { exit(code > 255 ? 255 : code); }

static void *find(void *library, const char *name) {
	void *symbol = dlsym(library, name);
	if (!symbol) {
		printf("Failed to initialize NVML: Function Not Found\n");
		quit(NVML_ERROR_FUNCTION_NOT_FOUND);
	}
	return symbol;
}

static void load(void) {
	void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
	if (!library) {
		printf("NVIDIA-SMI couldn't find libnvidia-ml.so.1.\n");
		quit(NVML_ERROR_LIBRARY_NOT_FOUND);
	}
#define BIND(name, arguments) *(void **)&name = find(library, #name);
	FUNCTIONS(BIND)
	*(void **)&nvmlErrorString = find(library, "nvmlErrorString");
	int code = nvmlInit_v2();
	if (code == NVML_ERROR_DRIVER_NOT_LOADED) {
		printf("NVIDIA-SMI has failed: no NVIDIA driver answers.\n");
		quit(code);
	}
	if (code) {
		printf("Failed to initialize NVML: %s\n", nvmlErrorString(code));
		quit(code);
	}
}

static unsigned count(void) {
	unsigned n = 0;
	int code = nvmlDeviceGetCount_v2(&n);
	if (code) {
		printf("Failed to count GPUs: %s\n", nvmlErrorString(code));
		quit(code);
	}
	if (n == 0) {
		printf("No devices were found\n");
		quit(NVML_ERROR_NOT_FOUND);
	}
	return n;
}

// One GPU as it is printed.
struct gpu {
	nvmlDevice device;
	char name[96], uuid[96], driver[96];
	nvmlPciInfo pci;
	unsigned mig;
};

static struct gpu get(unsigned index) {
	struct gpu g;
	unsigned pending;
	char bus[16];
	int code = nvmlDeviceGetHandleByIndex_v2(index, &g.device);
	if (!code) {
		code = nvmlDeviceGetName(g.device, g.name, sizeof g.name);
	}
	if (!code) {
		code = nvmlDeviceGetUUID(g.device, g.uuid, sizeof g.uuid);
	}
	if (!code) {
		code = nvmlDeviceGetPciInfo_v3(g.device, &g.pci);
	}
	if (!code) {
		code = nvmlDeviceGetMigMode(g.device, &g.mig, &pending);
	}
	if (!code) {
		code = nvmlSystemGetDriverVersion(g.driver, sizeof g.driver);
	}
	if (code) {
		fake_bus((int)index, bus, sizeof bus);
		printf("Unable to determine the device handle for GPU %s: %s\n", bus, nvmlErrorString(code));
		quit(code);
	}
	return g;
}

static void list(void) {
	unsigned n = count();
	for (unsigned i = 0; i < n; i++) {
		struct gpu g = get(i);
		printf("GPU %u: %s (UUID: %s)\n", i, g.name, g.uuid);
		unsigned most = 0;
		nvmlDeviceGetMaxMigDeviceCount(g.device, &most);
		for (unsigned m = 0; m < most; m++) {
			nvmlDevice mig;
			char uuid[96];
			if (nvmlDeviceGetMigDeviceHandleByIndex(g.device, m, &mig) == 0 &&
			    nvmlDeviceGetUUID(mig, uuid, sizeof uuid) == 0) {
				printf("  MIG 1g.5gb      Device  %u: (UUID: %s)\n", m, uuid);
			}
		}
	}
}

static void width(int (*read)(nvmlDevice, unsigned *), nvmlDevice device) {
	unsigned value;
	if (read(device, &value) == 0) {
		printf("%u", value);
	} else {
		printf("[N/A]");
	}
}

static void field(const struct gpu *g, unsigned index, const char *name) {
	if (strcmp(name, "index") == 0) {
		printf("%u", index);
	} else if (strcmp(name, "uuid") == 0) {
		printf("%s", g->uuid);
	} else if (strcmp(name, "name") == 0) {
		printf("%s", g->name);
	} else if (strcmp(name, "driver_version") == 0) {
		printf("%s", g->driver);
	} else if (strcmp(name, "pci.bus_id") == 0) {
		printf("%s", g->pci.busId);
	} else if (strcmp(name, "mig.mode.current") == 0) {
		printf("%s", g->mig ? "Enabled" : "Disabled");
	} else if (strcmp(name, "pcie.link.width.current") == 0) {
		width(nvmlDeviceGetCurrPcieLinkWidth, g->device);
	} else if (strcmp(name, "pcie.link.width.max") == 0) {
		width(nvmlDeviceGetMaxPcieLinkWidth, g->device);
	} else if (strcmp(name, "ecc.errors.uncorrected.volatile.total") == 0) {
		printf("[N/A]");
	} else {
		printf("Field \"%s\" is not a valid field to query.\n", name);
		quit(NVML_ERROR_INVALID_ARGUMENT);
	}
}

static void query(const char *fields) {
	unsigned n = count();
	for (unsigned i = 0; i < n; i++) {
		struct gpu g = get(i);
		char copy[256], *rest, *name;
		const char *comma = "";
		snprintf(copy, sizeof copy, "%s", fields);
		for (name = strtok_r(copy, ",", &rest); name; name = strtok_r(NULL, ",", &rest), comma = ", ") {
			printf("%s", comma);
			field(&g, i, name);
		}
		printf("\n");
	}
}

static void table(void) {
	unsigned n = count();
	printf("| NVIDIA-SMI %s    Driver Version: %s |\n", FAKE_DRIVER, FAKE_DRIVER);
	for (unsigned i = 0; i < n; i++) {
		struct gpu g = get(i);
		printf("| %3u  %-28s %s |\n", i, g.name, g.pci.busId);
	}
}

int main(int argc, char **argv) {
	const char query_flag[] = "--query-gpu=";
	const char *fields = NULL, *mode = "";
	for (int i = 1; i < argc; i++) {
		if (strncmp(argv[i], query_flag, sizeof query_flag - 1) == 0) {
			fields = argv[i] + sizeof query_flag - 1;
		} else if (strcmp(argv[i], "-L") == 0 || strcmp(argv[i], "--version") == 0) {
			mode = argv[i];
		} else if (strcmp(argv[i], "--format=csv,noheader") != 0 &&
		           strcmp(argv[i], "--format=csv,noheader,nounits") != 0) {
			printf("Invalid combination of input arguments.\n");
			return NVML_ERROR_INVALID_ARGUMENT;
		}
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	load();
	if (strcmp(mode, "--version") == 0) {
		// It needs no GPU, only the library.
		printf("NVIDIA-SMI version  : %s\nDRIVER version      : %s\n", FAKE_DRIVER, FAKE_DRIVER);
	} else if (strcmp(mode, "-L") == 0) {
		list();
	} else if (fields) {
		query(fields);
	} else {
		table();
	}
	nvmlShutdown();
	return 0;
}
