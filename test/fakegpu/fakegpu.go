package fakegpu

import (
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// The environment variables of the stand-ins.
const (
	// GPUs lists the GPUs of the machine.
	GPUs = "FAKE_GPUS"
	// CUDA are the faults of libcuda.so.1.
	CUDA = "FAKE_CUDA"
	// NVML are the faults of libnvidia-ml.so.1, and so of nvidia-smi.
	NVML = "FAKE_NVML"
	// Handles is a file in Stack.Lib, which a process locks, shared, while it has opened libnvidia-ml.so.1.
	Handles = "FAKE_HANDLES"
)

//go:embed testdata
var sources embed.FS

// Stack is a built set of stand-ins.
type Stack struct {
	// Lib has libcuda.so.1 and libnvidia-ml.so.1, Bin nvidia-smi.
	Lib, Bin string
}

// Build compiles the stand-ins into a temporary directory of the test. It skips the test if there is no C compiler.
// The functions named in without are missing from libcuda.so.1, as from the library of an old driver.
func Build(t *testing.T, without ...string) Stack {
	t.Helper()
	if _, err := exec.LookPath(compiler); err != nil {
		t.Skipf("needs a C compiler for the stand-ins of NVIDIA's libraries: %v", err)
	}
	stack, err := BuildIn(t.Context(), t.TempDir(), without...)
	if err != nil {
		t.Fatal(err)
	}
	return stack
}

// compiler is the C compiler.
const compiler = "cc"

// BuildIn is Build for programs other than tests, into an empty directory. It fails if there is no C compiler.
func BuildIn(ctx context.Context, dir string, without ...string) (Stack, error) {
	stack := Stack{Lib: filepath.Join(dir, "lib"), Bin: filepath.Join(dir, "bin")}
	for _, made := range []string{stack.Lib, stack.Bin} {
		if err := os.Mkdir(made, 0o755); err != nil {
			return Stack{}, fmt.Errorf("build the stand-ins of NVIDIA's libraries: %w", err)
		}
	}
	if err := os.CopyFS(dir, sources); err != nil {
		return Stack{}, fmt.Errorf("build the stand-ins of NVIDIA's libraries: %w", err)
	}
	cuda := []string{"-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "fake.c", "ptx.c", "libcuda.c", "-ldl"}
	for _, function := range without {
		// The loader only finds it under this name.
		cuda = append(cuda, "-D"+function+"=no_"+function)
	}
	for output, args := range map[string][]string{
		filepath.Join(stack.Lib, "libcuda.so.1"): cuda,
		filepath.Join(stack.Lib, "libnvidia-ml.so.1"): {
			"-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "fake.c", "libnvidia-ml.c", "-ldl"},
		filepath.Join(stack.Bin, "nvidia-smi"): {"fake.c", "nvidia-smi.c", "-ldl"},
	} {
		command := exec.CommandContext(ctx, compiler,
			slices.Concat([]string{"-O1", "-Wall", "-Wextra", "-Werror", "-o", output}, args)...)
		command.Dir = filepath.Join(dir, "testdata")
		if out, err := command.CombinedOutput(); err != nil {
			return Stack{}, fmt.Errorf("build %s: %w\n%s", output, err, out)
		}
	}
	return stack, nil
}

// Environ returns an environment in which a process finds only the stand-ins, with additional assignments.
func (s Stack) Environ(assignments ...string) []string {
	return append([]string{"PATH=" + s.Bin, "LD_LIBRARY_PATH=" + s.Lib}, assignments...)
}
