// A stand-in for libcuda.so.1 whose GPUs are memory of the host and an interpreter of PTX. It is as
// strict as the real one where a mistake of the caller would else stay unseen: about initialisation,
// contexts, addresses and sizes.
#define _GNU_SOURCE
#include "fake.h"
#include "ptx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENV "FAKE_CUDA"
#define FAULT(gpu)                                                                                                     \
	do {                                                                                                               \
		int fault = fake_fault(ENV, __func__, gpu);                                                                    \
		if (fault) {                                                                                                   \
			return fault;                                                                                              \
		}                                                                                                              \
	} while (0)

enum {
	OK = 0,
	INVALID_VALUE = 1,
	NOT_INITIALIZED = 3,
	NO_DEVICE = 100,
	INVALID_DEVICE = 101,
	INVALID_PTX = 218,
	INVALID_CONTEXT = 201,
	INVALID_HANDLE = 400,
	NOT_FOUND = 500,
};

enum { MAX_BUFFERS = 16 };

struct device {
	int gpu, mig, retained;
	struct ptx *module;
	struct {
		uint64_t address;
		size_t size;
		char *content;
	} buffer[MAX_BUFFERS];
};

static struct device device[MAX_GPUS * MAX_MIG];
static int devices, initialized, launches;
static __thread struct device *current;

static void add_device(int gpu, int mig) {
	device[devices].gpu = gpu;
	device[devices++].mig = mig;
}

// visible puts together what the process may see. Where there are MIG devices a process gets only
// one; CUDA_VISIBLE_DEVICES, a list of unique ids, says which, or which GPUs.
static void visible(void) {
	int mig[MAX_GPUS], n = fake_gpus(mig), first_gpu = -1;
	const char *wanted = getenv("CUDA_VISIBLE_DEVICES");
	char id[64];
	for (int gpu = 0; gpu < n; gpu++) {
		for (int i = 0; i < mig[gpu]; i++) {
			fake_uuid_text(gpu, i, id, sizeof id);
			if (wanted ? strstr(wanted, id) != NULL : first_gpu < 0) {
				add_device(gpu, i);
				return;
			}
		}
	}
	for (int gpu = 0; gpu < n; gpu++) {
		fake_uuid_text(gpu, -1, id, sizeof id);
		if (mig[gpu] < 0 && (!wanted || strstr(wanted, id))) {
			add_device(gpu, -1);
		}
	}
}

int cuInit(unsigned flags) {
	FAULT(-1);
	if (flags != 0) {
		return INVALID_VALUE;
	}
	if (!initialized) {
		visible();
	}
	initialized = devices > 0;
	return initialized ? OK : NO_DEVICE;
}

int cuGetErrorName(int code, const char **name) {
	static const struct {
		int code;
		const char *name;
	} names[] = {
		{1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"}, {3, "CUDA_ERROR_NOT_INITIALIZED"},
		{34, "CUDA_ERROR_STUB_LIBRARY"}, {46, "CUDA_ERROR_DEVICE_UNAVAILABLE"}, {100, "CUDA_ERROR_NO_DEVICE"},
		{101, "CUDA_ERROR_INVALID_DEVICE"}, {201, "CUDA_ERROR_INVALID_CONTEXT"}, {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
		{214, "CUDA_ERROR_ECC_UNCORRECTABLE"}, {218, "CUDA_ERROR_INVALID_PTX"}, {220, "CUDA_ERROR_NVLINK_UNCORRECTABLE"},
		{221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND"}, {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
		{223, "CUDA_ERROR_JIT_COMPILATION_DISABLED"}, {304, "CUDA_ERROR_OPERATING_SYSTEM"},
		{400, "CUDA_ERROR_INVALID_HANDLE"}, {500, "CUDA_ERROR_NOT_FOUND"}, {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
		{702, "CUDA_ERROR_LAUNCH_TIMEOUT"}, {719, "CUDA_ERROR_LAUNCH_FAILED"}, {801, "CUDA_ERROR_NOT_SUPPORTED"},
		{802, "CUDA_ERROR_SYSTEM_NOT_READY"}, {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
		{804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"}, {805, "CUDA_ERROR_MPS_CONNECTION_FAILED"},
		{807, "CUDA_ERROR_MPS_SERVER_NOT_READY"}, {999, "CUDA_ERROR_UNKNOWN"},
	};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		if (names[i].code == code) {
			*name = names[i].name;
			return OK;
		}
	}
	*name = NULL;
	return INVALID_VALUE;
}

int cuDeviceGetCount(int *count) {
	long value;
	FAULT(-1);
	*count = fake_word(ENV, "count", 0, &value) ? (int)value : devices;
	return initialized ? OK : NOT_INITIALIZED;
}

int cuDeviceGet(int *handle, int index) {
	FAULT(index);
	*handle = index;
	return index >= 0 && index < devices ? OK : INVALID_DEVICE;
}

int cuDeviceGetName(char *name, int size, int handle) {
	FAULT(handle);
	snprintf(name, (size_t)size, "%s%s", fake_model()->name, device[handle].mig < 0 ? "" : " MIG 1g.5gb");
	return OK;
}

int cuDeviceGetUuid_v2(uint8_t uuid[16], int handle) {
	FAULT(handle);
	fake_uuid(device[handle].gpu, device[handle].mig, uuid);
	return OK;
}

int cuDeviceGetPCIBusId(char *id, int size, int handle) {
	FAULT(handle);
	fake_bus(device[handle].gpu, id, (size_t)size);
	return OK;
}

int cuDeviceGetAttribute(int *value, int attribute, int handle) {
	long mode = 0;
	FAULT(handle);
	if (attribute != 20) {
		return INVALID_VALUE;
	}
	fake_word(ENV, "mode", 0, &mode);
	*value = (int)mode;
	return OK;
}

int cuDevicePrimaryCtxRetain(void **context, int handle) {
	FAULT(handle);
	if (!initialized || handle < 0 || handle >= devices) {
		return INVALID_DEVICE;
	}
	device[handle].retained++;
	*context = &device[handle];
	return OK;
}

int cuDevicePrimaryCtxRelease_v2(int handle) {
	FAULT(handle);
	struct device *d = &device[handle];
	if (--d->retained == 0) {
		for (int i = 0; i < MAX_BUFFERS; i++) {
			free(d->buffer[i].content);
		}
		memset(d->buffer, 0, sizeof d->buffer);
	}
	return OK;
}

int cuCtxSetCurrent(void *context) {
	struct device *d = context;
	FAULT(d ? (int)(d - device) : -1);
	current = d;
	return OK;
}

// index of the current device; -1 without a context that is in use.
static int now(void) { return current && current->retained > 0 ? (int)(current - device) : -1; }

int cuCtxSynchronize(void) {
	FAULT(now());
	return now() < 0 ? INVALID_CONTEXT : OK;
}

int cuModuleLoadDataEx(void **module, const char *image, unsigned n, const int *keys, void **values) {
	char *log = NULL, none[1];
	size_t size = 0;
	for (unsigned i = 0; i < n; i++) {
		if (keys[i] == 5) {
			log = values[i];
		} else if (keys[i] == 6) {
			size = (size_t)values[i];
		} else {
			return INVALID_VALUE;
		}
	}
	int fault = fake_fault(ENV, __func__, now());
	if (fault) {
		if (log && (fault == INVALID_PTX || fault == 222)) {
			snprintf(log, size, "ptx input, line 5; fatal: unsupported .version\nptx fatal: compilation aborted\n");
		}
		return fault;
	}
	if (now() < 0) {
		return INVALID_CONTEXT;
	}
	current->module = ptx_parse(image, log ? log : none, log ? size : 0);
	*module = current->module;
	return current->module ? OK : INVALID_PTX;
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
	FAULT(now());
	if (!current || module != current->module) {
		return INVALID_HANDLE;
	}
	*function = module;
	return ptx_has_entry(module, name) ? OK : NOT_FOUND;
}

// memory finds an address of the current device. Addresses are not those of the host, so that one
// does not pass for the other.
static void *memory(uint64_t address, size_t size) {
	for (int i = 0; i < MAX_BUFFERS; i++) {
		uint64_t offset = address - current->buffer[i].address;
		if (current->buffer[i].content && address >= current->buffer[i].address && offset < current->buffer[i].size &&
		    size <= current->buffer[i].size - offset) {
			return current->buffer[i].content + offset;
		}
	}
	return NULL;
}

static void *word(uint64_t address) { return memory(address, 4); }

int cuMemAlloc_v2(uint64_t *address, size_t size) {
	static uint64_t next = 0x7f00000000;
	FAULT(now());
	for (int i = 0; now() >= 0 && i < MAX_BUFFERS; i++) {
		if (!current->buffer[i].content) {
			current->buffer[i].content = memset(malloc(size), 0xa5, size);
			current->buffer[i].size = size;
			*address = current->buffer[i].address = next;
			next += (size + 0xfff) & ~(uint64_t)0xfff;
			return OK;
		}
	}
	return INVALID_CONTEXT;
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size) {
	FAULT(now());
	void *at = now() < 0 ? NULL : memory(to, size);
	if (!at) {
		return INVALID_VALUE;
	}
	memcpy(at, from, size);
	return OK;
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) {
	FAULT(now());
	void *at = now() < 0 ? NULL : memory(from, size);
	if (!at) {
		return INVALID_VALUE;
	}
	memcpy(to, at, size);
	return OK;
}

// spoil makes the numbers wrong as FAKE_CUDA says. The result is the third argument of the kernel.
static void spoil(void **arguments, uint32_t threads) {
	uint64_t sum;
	long i, on;
	memcpy(&sum, arguments[2], 8);
	float *at = word(sum);
	if (!at || (fake_word(ENV, "on", 0, &on) && on != now())) {
		return;
	}
	if (fake_word(ENV, "wrong", 0, &i)) {
		uint32_t bits;
		memcpy(&bits, at + i, 4);
		bits ^= 1; // The last bit is enough.
		memcpy(at + i, &bits, 4);
	}
	if (fake_word(ENV, "overrun", 0, &i)) {
		at[threads - 1] = 1;
	}
}

int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **arguments, void **extra) {
	long most = (long)grid_x * block_x, only;
	FAULT(now());
	if (now() < 0 || !function || function != current->module) {
		return INVALID_HANDLE;
	}
	if (grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1 || block_x > 1024 || shared || stream || extra) {
		return INVALID_VALUE;
	}
	if (fake_word(ENV, "launches", 0, &only) && launches++ >= only) {
		return OK; // Nothing runs any more.
	}
	fake_word(ENV, "threads", 0, &most);
	for (long i = 0; i < most; i++) {
		int code = ptx_run(function, arguments, (unsigned)i / block_x, block_x, (unsigned)i % block_x, word);
		if (code) {
			return code;
		}
	}
	spoil(arguments, grid_x * block_x);
	return OK;
}
