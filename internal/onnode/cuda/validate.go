package cuda

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
)

// Validate runs the kernel on every GPU that the library shows, which is Library except in tests, and writes one
// line for each GPU to out: that it works, or that it is in use, which is not a failure (see inUse). It continues
// after a GPU that fails, so that the lines list the others that work. The error is one sentence with the cause and
// the remedy; of several GPUs that fail it describes the first and names the others.
//
// A call of a broken driver may never return, so the caller needs a process of its own for it, with a time limit.
func Validate(libraryPath string, out io.Writer) error {
	// A context belongs to a thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	lib, err := open(libraryPath)
	if err != nil {
		return err
	}
	devices, err := lib.devices()
	if err != nil {
		return err
	}
	var (
		first  error
		failed []string
	)
	for _, d := range devices {
		line, err := d.report()
		if err != nil {
			if first == nil {
				first = fmt.Errorf("%s: %w", d, err)
			}
			failed = append(failed, fmt.Sprint(d.index))
			continue
		}
		if _, err := fmt.Fprintf(out, "%s: %s\n", d, line); err != nil {
			return fmt.Errorf("write the result; check where the output of this program goes: %w", err)
		}
	}
	if len(failed) > 1 {
		return fmt.Errorf("%w (of %d GPUs, these fail: %s)", first, len(devices), strings.Join(failed, ", "))
	}
	return first
}

// devices initialises the library and returns the GPUs that it shows, in its order.
func (l *library) devices() ([]device, error) {
	if err := l.check("cuInit", l.init(0)); err != nil {
		return nil, err
	}
	var n int32
	if err := l.check("cuDeviceGetCount", l.deviceCount(&n)); err != nil {
		return nil, err
	}
	if n < 1 {
		return nil, errors.New("CUDA shows no GPU: " + remedies[100])
	}
	devices := make([]device, 0, n)
	for i := range n {
		d, err := l.identify(i)
		if err != nil {
			return nil, fmt.Errorf("GPU %d cannot be identified: %w", i, err)
		}
		devices = append(devices, d)
	}
	return devices, nil
}

// identify returns the GPU with this index.
func (l *library) identify(index int32) (device, error) {
	const size = 256
	var (
		d         = device{lib: l, index: index}
		uuid      [16]byte
		name, bus [size]byte
	)
	if err := l.check("cuDeviceGet", l.device(&d.handle, index)); err != nil {
		return d, err
	}
	if err := l.check("cuDeviceGetName", l.deviceName(&name[0], size, d.handle)); err != nil {
		return d, err
	}
	if err := l.check("cuDeviceGetUuid_v2", l.deviceUUID(&uuid, d.handle)); err != nil {
		return d, err
	}
	if err := l.check("cuDeviceGetPCIBusId", l.deviceBusID(&bus[0], size, d.handle)); err != nil {
		return d, err
	}
	d.name, d.bus = text(&name[0]), text(&bus[0])
	prefix := "GPU"
	if strings.Contains(d.name, " MIG ") {
		// The library gives no prefix. nvidia-smi detects MIG devices in the same way.
		prefix = "MIG"
	}
	d.uuid = fmt.Sprintf("%s-%x-%x-%x-%x-%x", prefix, uuid[:4], uuid[4:6], uuid[6:8], uuid[8:10], uuid[10:])
	return d, nil
}
