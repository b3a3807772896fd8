package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"unsafe"
)

// device is a GPU, or a MIG device of one.
type device struct {
	lib    *library
	index  int32
	handle int32
	// name is the product's name, uuid is as nvidia-smi prints it, bus is the PCI address.
	name, uuid, bus string
}

func (d device) String() string {
	return fmt.Sprintf("GPU %d (%s, %s, %s)", d.index, d.name, d.uuid, d.bus)
}

// report returns that the GPU works or is in use, or the error.
func (d device) report() (string, error) {
	err := d.validate()
	if err == nil {
		return fmt.Sprintf("adds %d numbers, %d times", count, rounds), nil
	}
	var f *failure
	if errors.As(err, &f) && d.inUse(f.code) {
		return "is in use, not validated: " + f.what(), nil
	}
	return "", err
}

// inUse reports whether another process uses the GPU, so that there is no room for the kernel: all of its memory
// is allocated, or its compute mode admits one process, or none. That is not a failure, and the node of a GPU at
// work must not be taken out of service: the GPU works for its user. In the default compute mode a GPU that is
// unavailable is broken.
func (d device) inUse(code result) bool {
	if code == outOfMemory {
		return true
	}
	var mode int32
	return code == deviceUnavailable &&
		d.lib.deviceAttribute(&mode, computeMode, d.handle) == success && mode != computeModeDefault
}

// validate runs the kernel. Everything that it allocates on the GPU belongs to the context and ends with it.
func (d device) validate() error {
	var context uintptr
	if err := d.lib.check("cuDevicePrimaryCtxRetain", d.lib.contextRetain(&context, d.handle)); err != nil {
		return err
	}
	// The result is ignored: after a kernel that failed, this fails too.
	defer d.lib.contextRelease(d.handle)
	if err := d.lib.check("cuCtxSetCurrent", d.lib.contextUse(context)); err != nil {
		return err
	}
	kernel, err := d.lib.compile()
	if err != nil {
		return err
	}
	args := &arguments{count: count}
	for _, address := range []*uint64{&args.a, &args.b, &args.sum} {
		if err := d.lib.check("cuMemAlloc_v2", d.lib.memoryAlloc(address, bytesOf(padded))); err != nil {
			return err
		}
	}
	for round := range rounds {
		a, b := inputs(round)
		sum, err := d.lib.add(kernel, args, a, b)
		if err != nil {
			return err
		}
		if err := verify(round, a, b, sum); err != nil {
			return err
		}
	}
	return nil
}

// arguments are the parameters of the kernel, in its order.
type arguments struct {
	a, b, sum uint64
	count     uint32
}

// compile makes the driver compile the kernel for the GPU of the current context.
func (l *library) compile() (kernel uintptr, err error) {
	image := append([]byte(ptx), 0)
	log := make([]byte, 4096)
	var pinner runtime.Pinner
	defer pinner.Unpin()
	pinner.Pin(&log[0])
	keys := []int32{jitErrorLog, jitErrorLogSize}
	values := []uintptr{uintptr(unsafe.Pointer(&log[0])), uintptr(len(log))}

	var module uintptr
	code := l.moduleLoad(&module, &image[0], uint32(len(keys)), &keys[0], &values[0])
	if err := l.check("cuModuleLoadDataEx", code); err != nil {
		if line := firstLine(log); line != "" {
			return 0, fmt.Errorf("%w (the compiler reports %q)", err, line)
		}
		return 0, err
	}
	return kernel, l.check("cuModuleGetFunction", l.moduleFunction(&kernel, module, entry))
}

// firstLine returns the first line of a log that ends with a NUL, cut for a termination message.
func firstLine(log []byte) string {
	const most = 300
	log, _, _ = bytes.Cut(log, []byte{0})
	line, _, _ := bytes.Cut(bytes.TrimSpace(log), []byte("\n"))
	return string(line[:min(len(line), most)])
}

// add runs the kernel on a and b and returns the result buffer.
func (l *library) add(kernel uintptr, args *arguments, a, b []float32) ([]float32, error) {
	sum := poisoned()
	for _, write := range []struct {
		to   uint64
		from []float32
	}{{args.a, a}, {args.b, b}, {args.sum, sum}} {
		if err := l.check("cuMemcpyHtoD_v2", l.memoryWrite(write.to, &write.from[0], bytesOf(padded))); err != nil {
			return nil, err
		}
	}
	if err := l.check("cuLaunchKernel", l.start(kernel, args)); err != nil {
		return nil, err
	}
	// A launch only queues the kernel; here it has ended.
	if err := l.check("cuCtxSynchronize", l.contextSync()); err != nil {
		return nil, err
	}
	return sum, l.check("cuMemcpyDtoH_v2", l.memoryRead(&sum[0], args.sum, bytesOf(padded)))
}

// start queues the kernel. The library copies the arguments from their addresses.
func (l *library) start(kernel uintptr, args *arguments) result {
	var pinner runtime.Pinner
	defer pinner.Unpin()
	pinner.Pin(args)
	pointers := []unsafe.Pointer{
		unsafe.Pointer(&args.a), unsafe.Pointer(&args.b), unsafe.Pointer(&args.sum), unsafe.Pointer(&args.count)}
	return l.launch(kernel, blocks, 1, 1, width, 1, 1, 0, 0, &pointers[0], 0)
}

// bytesOf returns the size of this many elements.
func bytesOf(elements int) uintptr { return uintptr(elements) * unsafe.Sizeof(poison) }
