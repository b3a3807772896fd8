package nvml

// Library is the soname under which every driver installs the library.
const Library = "libnvidia-ml.so.1"

// Code is a return code of the library.
type Code int

// The return codes that are told apart.
const (
	Success           Code = 0
	NotSupported      Code = 3
	NoPermission      Code = 4
	NotFound          Code = 6
	InsufficientPower Code = 8
	DriverNotLoaded   Code = 9
	LibraryNotFound   Code = 12
	FunctionNotFound  Code = 13
	CorruptedInfoROM  Code = 14
	GPULost           Code = 15
	ResetRequired     Code = 16
	OperatingSystem   Code = 17
	LibraryMismatch   Code = 18
	NoSuchGPU         Code = 28
	ArgumentVersion   Code = 25
	Unknown           Code = 999
)

// IsDecisive reports whether the code says that the GPU itself needs something, when a call about it returns it.
func (c Code) IsDecisive() bool {
	return c == InsufficientPower || c == CorruptedInfoROM || c == GPULost || c == ResetRequired
}

// IsAbsent reports whether the library does not know of the GPU.
func (c Code) IsAbsent() bool { return c == NotFound || c == NoSuchGPU }

// Action is what a GPU needs to recover, as the library's field 230 has it.
type Action int

// The actions.
const (
	ActionNone Action = iota
	ActionReset
	ActionReboot
	ActionDrainPeers
	ActionDrainAndReset
	ActionRecoverFabric
)

// Bits of Throttle that are signs of a fault when they last: the heat or the power supply has slowed the GPU.
const (
	ThrottleHeat       = 0x40
	ThrottlePowerBrake = 0x80
)

// Sample is what one session has found.
type Sample struct {
	// Code is the first failure that concerns all GPUs; Success if there is none. Call is the function that returned it,
	// and Problem the loader's words if the library could not be loaded.
	Code    Code   `json:"code"`
	Call    string `json:"call,omitempty"`
	Problem string `json:"problem,omitempty"`
	// Driver is the version of the driver.
	Driver string `json:"driver,omitempty"`
	// Count is how many GPUs the library counts.
	Count int `json:"count"`
	// GPUs are those that were asked for, in that order.
	GPUs []GPU `json:"gpus,omitempty"`
}

// GPU is what a session has found about one GPU. Values that the GPU or its driver does not have are nil.
type GPU struct {
	// PCI is the address that was asked for, such as 0000:1b:00.0.
	PCI string `json:"pci"`
	// Code is the first decisive code of a call about the GPU, otherwise that of getting its handle.
	Code Code   `json:"code"`
	UUID string `json:"uuid,omitempty"`
	// Action is what the GPU needs to recover.
	Action *Action `json:"action,omitempty"`
	// Uncorrected counts the uncorrected memory errors since the driver was loaded.
	Uncorrected *uint64 `json:"uncorrected,omitempty"`
	// SRAMExceeded: the errors of the SRAM have exceeded the threshold for a field diagnostic.
	SRAMExceeded *bool  `json:"sramExceeded,omitempty"`
	Remap        *Remap `json:"remap,omitempty"`
	Link         *Link  `json:"link,omitempty"`
	// Throttle are the reasons for which the clocks are lower now, as bits.
	Throttle *uint64 `json:"throttle,omitempty"`
	// ThrottledNanos is how long heat or the power supply has slowed the GPU, since the driver was loaded.
	ThrottledNanos *uint64 `json:"throttledNanos,omitempty"`
	// NVLinks has the number of links of the GPU that are up, and of those that are down.
	NVLinks *NVLinks `json:"nvlinks,omitempty"`
}

// Remap is the state of the GPU's spare rows.
type Remap struct {
	// Correctable and Uncorrectable count the rows that were replaced because of such errors.
	Correctable   uint64 `json:"correctable"`
	Uncorrectable uint64 `json:"uncorrectable"`
	// Pending: a row is to be replaced at the next reset.
	Pending bool `json:"pending"`
	// Failed: a row could not be replaced, ever.
	Failed bool `json:"failed"`
}

// Link is the PCIe link of the GPU. The largest values are those of the GPU and its slot together.
type Link struct {
	Width         int `json:"width"`
	MaxWidth      int `json:"maxWidth"`
	Generation    int `json:"generation"`
	MaxGeneration int `json:"maxGeneration"`
}

// NVLinks counts the links to other GPUs and to switches.
type NVLinks struct {
	Up   int `json:"up"`
	Down int `json:"down"`
}
