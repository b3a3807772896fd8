package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi/nodeapitest"
)

// TestConfigure runs both containers of a pod with their variables: the first links what the label selects, never the
// default, and the second follows the label until SIGTERM.
func TestConfigure(t *testing.T) {
	t.Parallel()
	g, dir := NewWithT(t), t.TempDir()
	server := nodeapitest.Start(t, "node-a")
	label := func(value string) {
		server.Write(func(of, _ map[string]string) { of[labels.DevicePluginConfig] = value })
	}
	file, message := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "termination-log")
	g.Expect(os.Mkdir(filepath.Join(dir, "configs"), 0o700)).To(Succeed())
	for _, path := range []string{"configs/a", "configs/b", "termination-log"} {
		g.Expect(os.WriteFile(filepath.Join(dir, path), nil, 0o600)).To(Succeed())
	}
	command := func(variables ...string) *exec.Cmd {
		command := exec.CommandContext(t.Context(), gpuNode, "configure", "--service-account-dir="+server.ServiceAccountDir,
			"--termination-log="+message)
		command.Env = append([]string{
			"NODE_NAME=node-a", "NODE_LABEL=" + labels.DevicePluginConfig, "CONFIG_FILE_SRCDIR=" + filepath.Join(dir, "configs"),
			"CONFIG_FILE_DST=" + file, "DEFAULT_CONFIG=a", "FALLBACK_STRATEGIES=empty",
		}, append(server.Env, variables...)...)
		return command
	}
	linked := func() string {
		to, err := os.Readlink(file)
		g.Expect(err).NotTo(HaveOccurred())
		return filepath.Base(to)
	}
	label("b")
	out, err := command("ONESHOT=true", "SEND_SIGNAL=false").CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(out))
	g.Expect(linked()).To(Equal("b"))

	// Not the signal of the manifests: the reader would ignore it where the tests run by nohup.
	reader := exec.CommandContext(t.Context(), "sleep", "600")
	reader.Args[0] = "reader-of-" + filepath.Base(filepath.Dir(dir))
	g.Expect(reader.Start()).To(Succeed())
	label("a")
	process := startUntilLogged(t, command("ONESHOT=false", "SEND_SIGNAL=true", "SIGNAL=15",
		"PROCESS_TO_SIGNAL="+reader.Args[0]), "signalled a process")
	g.Expect(linked()).To(Equal("a"))
	g.Expect(reader.Wait()).To(MatchError("signal: terminated"))
	g.Expect(process.Process.Signal(syscall.SIGTERM)).To(Succeed())
	g.Expect(process.exitCode(t)).To(Equal(0))

	label("c")
	out, err = command().CombinedOutput()
	g.Expect(err).To(HaveOccurred(), string(out))
	g.Expect(os.ReadFile(message)).To(BeEquivalentTo("specified config c does not exist\n"))
	g.Expect(linked()).To(Equal("a"))
}
