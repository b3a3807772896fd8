package cuda

import (
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Library is the soname under which every driver installs the CUDA library.
const Library = "libcuda.so.1"

// computeMode is the number of the device attribute for who may use the GPU, and computeModeDefault its value
// where all processes may. The other values admit one process or none.
const (
	computeMode        = 20
	computeModeDefault = 0
)

// The options of the driver's compiler for where to write its errors.
const (
	jitErrorLog     = 5
	jitErrorLogSize = 6
)

// library is libcuda.so.1: the functions that are used. open binds each to the symbol of the version with this
// signature. Handles are uintptr, addresses in the memory of a GPU are uint64.
type library struct {
	init            func(flags uint32) result
	errorName       func(code result, name **byte) result
	deviceCount     func(count *int32) result
	device          func(handle *int32, index int32) result
	deviceName      func(name *byte, size, handle int32) result
	deviceUUID      func(uuid *[16]byte, handle int32) result
	deviceBusID     func(id *byte, size, handle int32) result
	deviceAttribute func(value *int32, attribute, handle int32) result
	contextRetain   func(context *uintptr, handle int32) result
	contextRelease  func(handle int32) result
	contextUse      func(context uintptr) result
	contextSync     func() result
	moduleLoad      func(module *uintptr, image *byte, options uint32, keys *int32, values *uintptr) result
	moduleFunction  func(function *uintptr, module uintptr, name string) result
	memoryAlloc     func(address *uint64, size uintptr) result
	memoryWrite     func(to uint64, from *float32, size uintptr) result
	memoryRead      func(to *float32, from uint64, size uintptr) result
	launch          func(function uintptr, gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes uint32,
		stream uintptr, arguments *unsafe.Pointer, extra uintptr) result
}

// open loads the library at path, a soname or a file. It fails with drivers before branch 470.
func open(path string) (*library, error) {
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("the CUDA library cannot be loaded; see the log of the container toolkit on this node, "+
			"the runtime class of this pod, and that NVIDIA_DRIVER_CAPABILITIES of this container has compute: %w", err)
	}
	l := &library{}
	for _, function := range []struct {
		name string
		into any
	}{
		{"cuInit", &l.init},
		{"cuGetErrorName", &l.errorName},
		{"cuDeviceGetCount", &l.deviceCount},
		{"cuDeviceGet", &l.device},
		{"cuDeviceGetName", &l.deviceName},
		{"cuDeviceGetUuid_v2", &l.deviceUUID},
		{"cuDeviceGetPCIBusId", &l.deviceBusID},
		{"cuDeviceGetAttribute", &l.deviceAttribute},
		{"cuDevicePrimaryCtxRetain", &l.contextRetain},
		{"cuDevicePrimaryCtxRelease_v2", &l.contextRelease},
		{"cuCtxSetCurrent", &l.contextUse},
		{"cuCtxSynchronize", &l.contextSync},
		{"cuModuleLoadDataEx", &l.moduleLoad},
		{"cuModuleGetFunction", &l.moduleFunction},
		{"cuMemAlloc_v2", &l.memoryAlloc},
		{"cuMemcpyHtoD_v2", &l.memoryWrite},
		{"cuMemcpyDtoH_v2", &l.memoryRead},
		{"cuLaunchKernel", &l.launch},
	} {
		address, err := purego.Dlsym(handle, function.name)
		if err != nil {
			return nil, fmt.Errorf("a function is missing in the CUDA library; install a driver of branch 470 or later: %w", err)
		}
		purego.RegisterFunc(function.into, address)
	}
	return l, nil
}

// check returns the failure of a function, nil if it succeeded.
func (l *library) check(function string, code result) error {
	if code == success {
		return nil
	}
	f := &failure{function: function, code: code, name: "an error without a name"}
	var name *byte
	if l.errorName(code, &name) == success && name != nil {
		f.name = text(name)
	}
	return f
}

// text copies a string that ends with a NUL.
func text(start *byte) string {
	length := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(start), length)) != 0 {
		length++
	}
	return string(unsafe.Slice(start, length))
}
