package fakegpu_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/fakegpu"
)

// caller calls a function that libnvidia-ml.so.1 does not have.
const caller = `
#include <dlfcn.h>
int main(int argc, char **argv) {
	void *library = dlopen(argv[argc - 1], RTLD_NOW);
	int (*function)(void) = library ? (int (*)(void))dlsym(library, "nvmlDeviceDiscoverGpus") : 0;
	return function ? function() : 99;
}
`

// No call of a function that the library does not have goes unnoticed: it is recorded, or ends the program.
func TestUnknownFunctions(t *testing.T) {
	g := NewWithT(t)
	stack := fakegpu.Build(t)
	program := filepath.Join(t.TempDir(), "caller")
	g.Expect(os.WriteFile(program+".c", []byte(caller), 0o600)).To(Succeed())
	g.Expect(exec.CommandContext(t.Context(), "cc", "-o", program, program+".c", "-ldl").Run()).To(Succeed())
	call := func(state string) (*os.ProcessState, string) {
		command := exec.CommandContext(t.Context(), program, filepath.Join(stack.Lib, "libnvidia-ml.so.1"))
		command.Env = stack.Environ()
		g.Expect(os.WriteFile(filepath.Join(stack.Lib, fakegpu.State), []byte(state), 0o600)).To(Succeed())
		output, err := command.CombinedOutput()
		g.Expect(err).To(BeAssignableToTypeOf(&exec.ExitError{}))
		return command.ProcessState, string(output)
	}
	state := t.TempDir()
	ended, _ := call(state)
	g.Expect(ended.ExitCode()).To(Equal(13), "NVML_ERROR_FUNCTION_NOT_FOUND")
	g.Expect(os.ReadFile(filepath.Join(state, fakegpu.Unknown))).To(BeEquivalentTo("nvmlDeviceDiscoverGpus\n"))

	ended, output := call(filepath.Join(state, "none"))
	status, _ := ended.Sys().(syscall.WaitStatus)
	g.Expect(status.Signal()).To(Equal(syscall.SIGABRT))
	g.Expect(output).To(ContainSubstring("nvmlDeviceDiscoverGpus"))
}
