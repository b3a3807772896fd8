// The part of NVML's interface that the stand-in has.
#ifndef NVML_H
#define NVML_H

typedef struct nvmlDevice *nvmlDevice;

typedef struct {
	char busIdLegacy[16];
	unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
	char busId[32];
} nvmlPciInfo;

typedef struct {
	unsigned id, scope;
	long long timestamp, latency;
	unsigned type;
	int code;
	unsigned long long value;
} nvmlFieldValue;

typedef struct {
	unsigned version;
	unsigned long long counters[11];
	unsigned exceeded;
} nvmlEccSramErrorStatus;

_Static_assert(sizeof(nvmlFieldValue) == 40, "as in the driver's header");
_Static_assert(sizeof(nvmlEccSramErrorStatus) == 104, "as in the driver's header");

enum {
	NVML_SUCCESS = 0,
	NVML_ERROR_UNINITIALIZED = 1,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_SUPPORTED = 3,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_DRIVER_NOT_LOADED = 9,
	NVML_ERROR_LIBRARY_NOT_FOUND = 12,
	NVML_ERROR_FUNCTION_NOT_FOUND = 13,
	NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
	NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
	NVML_ERROR_UNKNOWN = 999,
};

#endif
