package nvmlread

import (
	"bytes"
	"runtime"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/nvml"
)

// maxLinks is how many NVLinks a GPU has at most.
const maxLinks = 36

// Session opens the library at path, a soname or a file, reads the GPUs with these PCI addresses, and closes it.
func Session(path string, addresses []string) nvml.Sample {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	lib, call, err := open(path)
	if err != nil {
		return nvml.Sample{Code: nvml.LibraryNotFound, Call: call, Problem: err.Error()}
	}
	if code := lib.init(); code != nvml.Success {
		return nvml.Sample{Code: code, Call: "nvmlInit_v2"}
	}
	// At the latest the end of the process closes it.
	defer lib.shutdown()
	sample := nvml.Sample{Driver: lib.version()}
	var count uint32
	if code := lib.count(&count); code != nvml.Success {
		sample.Code, sample.Call = code, "nvmlDeviceGetCount_v2"
		return sample
	}
	sample.Count = int(count)
	for _, address := range addresses {
		sample.GPUs = append(sample.GPUs, lib.read(address))
	}
	return sample
}

func (l *library) version() string {
	var version [versionSize]byte
	if l.driverVersion == nil || l.driverVersion(&version[0], versionSize) != nvml.Success {
		return ""
	}
	return text(version[:])
}

// text returns the text before the first NUL.
func text(buffer []byte) string {
	before, _, _ := bytes.Cut(buffer, []byte{0})
	return string(before)
}

// device is a GPU that is being read.
type device struct {
	lib    *library
	handle uintptr
	gpu    nvml.GPU
}

// read returns the state of one GPU.
func (l *library) read(address string) nvml.GPU {
	d := &device{lib: l, gpu: nvml.GPU{PCI: address}}
	if code := l.handle(address, &d.handle); code != nvml.Success {
		d.gpu.Code = code
		return d.gpu
	}
	var uuid [uuidSize]byte
	if d.keepCode(l.uuid(d.handle, &uuid[0], uuidSize)) {
		d.gpu.UUID = text(uuid[:])
	}
	d.readFields()
	d.readSRAM()
	d.readThrottle()
	d.readLink()
	d.readNVLinks()
	return d.gpu
}

// keepCode keeps the first code that says what the GPU needs, and reports whether a call about it has succeeded.
func (d *device) keepCode(code nvml.Code) bool {
	if d.gpu.Code == nvml.Success && code.IsDecisive() {
		d.gpu.Code = code
	}
	return code == nvml.Success
}

// The library's numbers of the fields.
const (
	fieldUncorrected        = 4
	fieldRemapCorrectable   = 142
	fieldRemapUncorrectable = 143
	fieldRemapPending       = 144
	fieldRemapFailed        = 145
	fieldAction             = 230
	fieldHeatNanos          = 270
	fieldPowerBrakeNanos    = 271
)

// readFields reads the fields. Each has a code of its own, so that one that the driver does not know fails alone.
func (d *device) readFields() {
	if d.lib.fields == nil {
		return
	}
	ids := []uint32{
		fieldUncorrected, fieldRemapCorrectable, fieldRemapUncorrectable, fieldRemapPending, fieldRemapFailed, fieldAction,
		fieldHeatNanos, fieldPowerBrakeNanos,
	}
	values := make([]fieldValue, len(ids))
	for i, id := range ids {
		values[i].id = id
	}
	if !d.keepCode(d.lib.fields(d.handle, int32(len(values)), &values[0])) {
		return
	}
	found := map[uint32]uint64{}
	for _, value := range values {
		if d.keepCode(nvml.Code(value.code)) {
			found[value.id] = value.number()
		}
	}
	d.take(found)
}

// The types of the values of fields that have 64 bits.
const (
	typeUlong = 2
	typeUll   = 3
)

// number returns the value, of which the other bytes may be undefined if it is short.
func (v fieldValue) number() uint64 {
	switch v.valueType {
	case typeUlong, typeUll:
		return v.value
	default:
		return v.value & (1<<32 - 1)
	}
}

func (d *device) take(found map[uint32]uint64) {
	if value, known := found[fieldUncorrected]; known {
		d.gpu.Uncorrected = &value
	}
	if value, known := found[fieldAction]; known {
		d.gpu.Action = new(nvml.Action(value))
	}
	pending, hasPending := found[fieldRemapPending]
	failed, hasFailed := found[fieldRemapFailed]
	if hasPending && hasFailed {
		d.gpu.Remap = &nvml.Remap{
			Correctable: found[fieldRemapCorrectable], Uncorrectable: found[fieldRemapUncorrectable],
			Pending: pending != 0, Failed: failed != 0,
		}
	}
	heat, hasHeat := found[fieldHeatNanos]
	brake, hasBrake := found[fieldPowerBrakeNanos]
	if hasHeat && hasBrake {
		d.gpu.ThrottledNanos = new(heat + brake)
	}
}

func (d *device) readSRAM() {
	status := sramStatus{version: sramVersion}
	if d.lib.sram != nil && d.keepCode(d.lib.sram(d.handle, &status)) {
		d.gpu.SRAMExceeded = new(status.exceeded != 0)
	}
}

func (d *device) readThrottle() {
	var reasons uint64
	if d.lib.throttle != nil && d.keepCode(d.lib.throttle(d.handle, &reasons)) {
		d.gpu.Throttle = &reasons
	}
}

func (d *device) readLink() {
	var values [4]uint32
	for i, read := range []func(uintptr, *uint32) nvml.Code{
		d.lib.linkWidth, d.lib.linkMaxWidth, d.lib.linkGen, d.lib.linkMaxGen,
	} {
		if read == nil || !d.keepCode(read(d.handle, &values[i])) {
			return
		}
	}
	d.gpu.Link = &nvml.Link{
		Width: int(values[0]), MaxWidth: int(values[1]), Generation: int(values[2]), MaxGeneration: int(values[3]),
	}
}

// readNVLinks counts the links, until the library says that there is none with that number.
func (d *device) readNVLinks() {
	if d.lib.nvlinkState == nil {
		return
	}
	var links nvml.NVLinks
	for link := range uint32(maxLinks) {
		var active uint32
		if !d.keepCode(d.lib.nvlinkState(d.handle, link, &active)) {
			break
		}
		if active != 0 {
			links.Up++
		} else {
			links.Down++
		}
	}
	if links.Up+links.Down > 0 {
		d.gpu.NVLinks = &links
	}
}
