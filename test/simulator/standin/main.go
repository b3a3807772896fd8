// Stand-in plays the programs of NVIDIA's images, by the name under which it is started. It is one
// static file, so that it also runs in the root file system of a driver, which has no loader.
//
//   - nvidia-smi lists GPUs or fails, as the file beside it with the suffix .json says.
//   - gpu-node-cuda does the same for a kernel on each GPU.
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
		return cuda()
	default:
		return daemon()
	}
}

// part reads how the part behaves. It is found by the path of the call: in the driver's root there is
// no /proc that would tell where this program is.
func part() (standin.Part, error) {
	content, err := os.ReadFile(os.Args[0] + standin.PartSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return standin.Part{}, nil
	}
	if err != nil {
		return standin.Part{}, fmt.Errorf("read how to behave: %w", err)
	}
	var p standin.Part
	if err := json.Unmarshal(content, &p); err != nil {
		return standin.Part{}, fmt.Errorf("read how to behave: %w", err)
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
	if !slices.Contains(args, "-L") {
		fmt.Printf("| NVIDIA-SMI %s | GPUs: %d |\n", standin.DriverVersion, p.GPUs)
		return nil
	}
	for i := range p.GPUs {
		fmt.Printf("GPU %d: NVIDIA H100 80GB HBM3 (UUID: %s)\n", i, standin.GPUUUID(i))
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

// daemon sends its environment, then waits for its end.
func daemon() error {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	pipe := os.NewFile(standin.PipeDescriptor, "pipe")
	if _, err := pipe.WriteString(strings.Join(os.Environ(), "\x00")); err != nil {
		return fmt.Errorf("tell the simulator the environment: %w", err)
	}
	if err := pipe.Close(); err != nil {
		return fmt.Errorf("tell the simulator the environment: %w", err)
	}
	fmt.Println(strings.Join(os.Args, " ") + " runs")
	<-ended
	return nil
}
