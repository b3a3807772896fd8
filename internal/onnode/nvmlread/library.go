package nvmlread

import (
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/nvml"
)

// Sizes of the buffers for texts, which are those of the library's header.
const (
	uuidSize    = 96
	versionSize = 80
)

// fieldValue is the library's nvmlFieldValue_t.
type fieldValue struct {
	id        uint32
	_         uint32   // The scope.
	_         [2]int64 // The times of the value and of the call.
	valueType uint32
	code      uint32
	value     uint64
}

// sramStatus is the library's nvmlEccSramErrorStatus_v1_t.
type sramStatus struct {
	version  uint32
	_        uint32
	_        [11]uint64 // Counters.
	exceeded uint32
	_        uint32
}

// sramVersion is the size of the struct and the number of its version.
const sramVersion = uint32(unsafe.Sizeof(sramStatus{})) | 1<<24

// library is libnvidia-ml.so.1: the functions that are used. Handles are uintptr. Names with a suffix are those of the
// versions with this signature; the plain names are older ones.
type library struct {
	init          func() nvml.Code
	shutdown      func() nvml.Code
	driverVersion func(version *byte, size uint32) nvml.Code
	count         func(count *uint32) nvml.Code
	handle        func(pci string, handle *uintptr) nvml.Code
	uuid          func(handle uintptr, uuid *byte, size uint32) nvml.Code
	fields        func(handle uintptr, count int32, values *fieldValue) nvml.Code
	sram          func(handle uintptr, status *sramStatus) nvml.Code
	throttle      func(handle uintptr, reasons *uint64) nvml.Code
	linkWidth     func(handle uintptr, value *uint32) nvml.Code
	linkMaxWidth  func(handle uintptr, value *uint32) nvml.Code
	linkGen       func(handle uintptr, value *uint32) nvml.Code
	linkMaxGen    func(handle uintptr, value *uint32) nvml.Code
	nvlinkState   func(handle uintptr, link uint32, active *uint32) nvml.Code
}

// open loads the library at path, a soname or a file. Functions that it does not have stay nil, except those without
// which there is no session: for these it fails.
func open(path string) (*library, string, error) {
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, "dlopen", err
	}
	l := &library{}
	for _, function := range []struct {
		into     any
		required bool
		names    []string
	}{
		{&l.init, true, []string{"nvmlInit_v2"}},
		{&l.shutdown, true, []string{"nvmlShutdown"}},
		{&l.count, true, []string{"nvmlDeviceGetCount_v2"}},
		{&l.handle, true, []string{"nvmlDeviceGetHandleByPciBusId_v2"}},
		{&l.uuid, true, []string{"nvmlDeviceGetUUID"}},
		{&l.driverVersion, false, []string{"nvmlSystemGetDriverVersion"}},
		{&l.fields, false, []string{"nvmlDeviceGetFieldValues"}},
		{&l.sram, false, []string{"nvmlDeviceGetSramEccErrorStatus"}},
		{&l.throttle, false,
			[]string{"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"}},
		{&l.linkWidth, false, []string{"nvmlDeviceGetCurrPcieLinkWidth"}},
		{&l.linkMaxWidth, false, []string{"nvmlDeviceGetMaxPcieLinkWidth"}},
		{&l.linkGen, false, []string{"nvmlDeviceGetCurrPcieLinkGeneration"}},
		{&l.linkMaxGen, false, []string{"nvmlDeviceGetMaxPcieLinkGeneration"}},
		{&l.nvlinkState, false, []string{"nvmlDeviceGetNvLinkState"}},
	} {
		err := bind(handle, function.into, function.names)
		if err != nil && function.required {
			return nil, function.names[0], err
		}
	}
	return l, "", nil
}

// bind binds the first of the functions that the library has.
func bind(handle uintptr, into any, names []string) error {
	var first error
	for _, name := range names {
		address, err := purego.Dlsym(handle, name)
		if err == nil {
			purego.RegisterFunc(into, address)
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}
