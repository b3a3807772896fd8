package fakegpu

import (
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/clusterpolicy/gpu-operator/test/needs"
)

// The environment variables of the stand-ins.
const (
	// GPUs lists the GPUs of the machine.
	GPUs = "FAKE_GPUS"
	// CUDA are the faults of libcuda.so.1.
	CUDA = "FAKE_CUDA"
	// NVML are the faults of libnvidia-ml.so.1, and so of nvidia-smi.
	NVML = "FAKE_NVML"
	// Hangs is the path of a file that a process makes before it hangs.
	Hangs = "FAKE_HANGS"
	// Model names the model of all GPUs: a100, h100 or t4; a100 by default.
	Model = "FAKE_MODEL"
	// State names the directory of what libnvidia-ml.so.1 writes: the layout of MIG devices, which all processes share,
	// and Unknown. Stack.Lib by default.
	State = "FAKE_STATE"
	// Unknown is a file of the state, to which libnvidia-ml.so.1 adds the name of each function that is called and that
	// it does not have. It exists from the first such call.
	Unknown = "FAKE_UNKNOWN"
	// Events is a file in Stack.Lib with a line for each event of libnvidia-ml.so.1: the index of a GPU and an XID, and
	// for one of a MIG device also the IDs of its GPU instance and of its compute instance.
	Events = "FAKE_XID"
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
		needs.Unmet(t, needs.Compiler, err)
	}
	stack, err := BuildIn(t.Context(), t.TempDir(), without...)
	if err != nil {
		t.Fatal(err)
	}
	return stack
}

// compiler is the C compiler.
const compiler = "cc"

// built are the stand-ins that this process has compiled, by the functions that they lack. Each test gets a copy, as
// the files beside a library control it.
var built = struct {
	lock  sync.Mutex
	files map[string]map[string][]byte
}{files: map[string]map[string][]byte{}}

// BuildIn is Build for programs other than tests, into an empty directory. It fails if there is no C compiler.
func BuildIn(ctx context.Context, dir string, without ...string) (Stack, error) {
	stack := Stack{Lib: filepath.Join(dir, "lib"), Bin: filepath.Join(dir, "bin")}
	for _, made := range []string{stack.Lib, stack.Bin} {
		if err := os.Mkdir(made, 0o755); err != nil {
			return Stack{}, fmt.Errorf("build the stand-ins of NVIDIA's libraries: %w", err)
		}
	}
	files, err := compiled(ctx, without)
	if err != nil {
		return Stack{}, err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o755); err != nil {
			return Stack{}, fmt.Errorf("write the stand-ins of NVIDIA's libraries: %w", err)
		}
	}
	return stack, nil
}

// compiled returns the files of a stack by their paths. It compiles them once.
func compiled(ctx context.Context, without []string) (map[string][]byte, error) {
	built.lock.Lock()
	defer built.lock.Unlock()
	key := strings.Join(without, " ")
	if files := built.files[key]; files != nil {
		return files, nil
	}
	dir, err := os.MkdirTemp("", "fakegpu-")
	if err != nil {
		return nil, fmt.Errorf("build the stand-ins of NVIDIA's libraries: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.CopyFS(dir, sources); err != nil {
		return nil, fmt.Errorf("build the stand-ins of NVIDIA's libraries: %w", err)
	}
	files, err := compile(ctx, filepath.Join(dir, "testdata"), without)
	if err != nil {
		return nil, err
	}
	built.files[key] = files
	return files, nil
}

// compile compiles the sources in a directory.
func compile(ctx context.Context, dir string, without []string) (map[string][]byte, error) {
	cuda := []string{"-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "fake.c", "layout.c", "ptx.c", "libcuda.c", "-ldl"}
	for _, function := range without {
		// The loader only finds it under this name.
		cuda = append(cuda, "-D"+function+"=no_"+function)
	}
	files := map[string][]byte{}
	for output, args := range map[string][]string{
		"lib/libcuda.so.1": cuda,
		"lib/libnvidia-ml.so.1": {
			"-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "fake.c", "layout.c", "libnvidia-ml.c", "facts.c", "mig.c",
			"instances.c", "compute.c", "unknown.c", "-ldl"},
		"bin/nvidia-smi": {"fake.c", "layout.c", "nvidia-smi.c", "-ldl"},
	} {
		command := exec.CommandContext(ctx, compiler,
			slices.Concat([]string{"-O1", "-Wall", "-Wextra", "-Werror", "-o", "output"}, args)...)
		command.Dir = dir
		if out, err := command.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s: %w\n%s", output, err, out)
		}
		content, err := os.ReadFile(filepath.Join(dir, "output"))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", output, err)
		}
		files[output] = content
	}
	return files, nil
}

// Environ returns an environment in which a process finds only the stand-ins, with additional assignments.
func (s Stack) Environ(assignments ...string) []string {
	return append([]string{"PATH=" + s.Bin, "LD_LIBRARY_PATH=" + s.Lib}, assignments...)
}
