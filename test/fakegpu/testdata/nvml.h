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

typedef struct {
	unsigned long long total, free, used;
} nvmlMemory;

typedef struct {
	unsigned version;
	unsigned long long total, reserved, free, used;
} nvmlMemory_v2;

typedef struct {
	unsigned multiprocessors, copy, decoder, encoder, jpeg, ofa, gpuSlices, computeSlices;
	unsigned long long memory;
} nvmlDeviceAttributes;

typedef struct {
	nvmlDevice device;
	unsigned long long type, data;
	unsigned gpuInstance, computeInstance;
} nvmlEventData;

typedef struct {
	unsigned start, size;
} nvmlPlacement;

typedef struct {
	unsigned id, p2p, slices, count, multiprocessors, copy, decoder, encoder, jpeg, ofa;
	unsigned long long memory;
} nvmlGpuInstanceProfileInfo;

typedef struct {
	unsigned id, slices, count, multiprocessors, copy, decoder, encoder, jpeg, ofa;
} nvmlComputeInstanceProfileInfo;

typedef struct nvmlGpuInstance *nvmlGpuInstance;
typedef struct nvmlComputeInstance *nvmlComputeInstance;

typedef struct {
	nvmlDevice device;
	unsigned id, profile;
	nvmlPlacement placement;
} nvmlGpuInstanceInfo;

typedef struct {
	nvmlDevice device;
	nvmlGpuInstance gpuInstance;
	unsigned id, profile;
	nvmlPlacement placement;
} nvmlComputeInstanceInfo;

_Static_assert(sizeof(nvmlDeviceAttributes) == 40, "as in the driver's header");
_Static_assert(sizeof(nvmlEventData) == 32, "as in the driver's header");
_Static_assert(sizeof(nvmlGpuInstanceProfileInfo) == 48, "as in the driver's header");
_Static_assert(sizeof(nvmlGpuInstanceInfo) == 24, "as in the driver's header");
_Static_assert(sizeof(nvmlComputeInstanceInfo) == 32, "as in the driver's header");
_Static_assert(sizeof(nvmlFieldValue) == 40, "as in the driver's header");
_Static_assert(sizeof(nvmlEccSramErrorStatus) == 104, "as in the driver's header");

enum {
	NVML_SUCCESS = 0,
	NVML_ERROR_UNINITIALIZED = 1,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_SUPPORTED = 3,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_DRIVER_NOT_LOADED = 9,
	NVML_ERROR_TIMEOUT = 10,
	NVML_ERROR_LIBRARY_NOT_FOUND = 12,
	NVML_ERROR_FUNCTION_NOT_FOUND = 13,
	NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
	NVML_ERROR_IN_USE = 19,
	NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
	NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
	NVML_ERROR_UNKNOWN = 999,
};

#endif
