// Command standin replaces the programs of NVIDIA's images, depending on the name under which it is started. It is
// statically linked, so that it also runs in the root file system of a driver, which has no loader.
//
//   - nvidia-smi lists GPUs or fails, as configured by the file next to it with the suffix .json.
//   - gpu-node-cuda does the same for a kernel on each GPU. In a session with the driver's management library it finds
//     healthy GPUs.
//   - Every other name is a program that runs until SIGTERM, such as nvidia-toolkit. It sends its
//     environment to the simulator, which thereby learns that gpu-node has become it, and with what.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/clusterpolicy/gpu-operator/test/simulator/host/standin"
)

func main() {
	if err := play(filepath.Base(os.Args[0]), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func play(name string, args []string) error {
	switch name {
	case standin.SMI:
		return smi(args)
	case standin.CUDA:
		if len(args) > 0 && args[0] == standin.Session {
			return session(args[1:])
		}
		return cuda()
	default:
		return daemon()
	}
}

// part reads the configuration. Its path is derived from the program's argument zero: the driver's root has no /proc
// to look up the executable.
func part() (standin.Part, error) {
	content, err := os.ReadFile(os.Args[0] + standin.PartSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return standin.Part{}, nil
	}
	if err != nil {
		return standin.Part{}, fmt.Errorf("read the configuration: %w", err)
	}
	var p standin.Part
	if err := json.Unmarshal(content, &p); err != nil {
		return standin.Part{}, fmt.Errorf("read the configuration: %w", err)
	}
	return p, nil
}

func smi(args []string) error {
	p, err := part()
	if err != nil {
		return err
	}
	if p.ExitCode != 0 {
		fmt.Println("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
		os.Exit(p.ExitCode)
	}
	for _, arg := range args {
		if fields, ok := strings.CutPrefix(arg, "--query-gpu="); ok {
			return query(p, strings.Split(fields, ","))
		}
	}
	if !slices.Contains(args, "-L") {
		fmt.Printf("| NVIDIA-SMI %s | GPUs: %d |\n", standin.DriverVersion, p.GPUs)
		return nil
	}
	for i := range p.GPUs {
		fmt.Printf("GPU %d: %s (UUID: %s)\n", i, standin.Product, standin.GPUUUID(i))
	}
	return nil
}

// query prints one line for each GPU, in the format --format=csv,noheader.
func query(p standin.Part, fields []string) error {
	for i := range p.GPUs {
		values := map[string]string{
			"index":            strconv.Itoa(i),
			"name":             standin.Product,
			"uuid":             standin.GPUUUID(i),
			"driver_version":   standin.DriverVersion,
			"pci.bus_id":       "0000" + strings.ToUpper(standin.GPUAddress(i)),
			"mig.mode.current": "Disabled",
		}
		var line []string
		for _, field := range fields {
			value, ok := values[field]
			if !ok {
				return fmt.Errorf("the field %s is not simulated", field)
			}
			line = append(line, value)
		}
		fmt.Println(strings.Join(line, ", "))
	}
	return nil
}

func cuda() error {
	p, err := part()
	if err != nil {
		return err
	}
	for i := range p.GPUs {
		fmt.Printf("GPU %d (%s): the kernel ran\n", i, standin.GPUUUID(i))
	}
	os.Exit(p.ExitCode)
	return nil
}

// session prints what a session finds about the GPUs at these addresses, in JSON. The flags before them name the
// library.
func session(args []string) error {
	p, err := part()
	if err != nil {
		return err
	}
	type gpu struct {
		PCI  string `json:"pci"`
		UUID string `json:"uuid"`
	}
	var gpus []gpu
	for i := range p.GPUs {
		if address := standin.GPUAddress(i); slices.Contains(args, address) {
			gpus = append(gpus, gpu{PCI: address, UUID: standin.GPUUUID(i)})
		}
	}
	found := map[string]any{"driver": standin.DriverVersion, "count": p.GPUs, "gpus": gpus}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		return fmt.Errorf("write what the session has found: %w", err)
	}
	return nil
}

// daemon sends its environment, then waits for SIGTERM.
func daemon() error {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	pipe := os.NewFile(standin.PipeDescriptor, "pipe")
	if _, err := pipe.WriteString(strings.Join(os.Environ(), "\x00")); err != nil {
		return fmt.Errorf("send the environment to the simulator: %w", err)
	}
	if err := pipe.Close(); err != nil {
		return fmt.Errorf("send the environment to the simulator: %w", err)
	}
	fmt.Println(strings.Join(os.Args, " ") + " runs")
	<-ended
	return nil
}
