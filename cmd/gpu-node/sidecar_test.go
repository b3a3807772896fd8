package main_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
)

// A sidecar of the driver starts once the driver container of its own pod is up, and its root is shared.
func TestExecWaitsForTheDriverContainerOfItsPod(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	p := newPod(t)
	sources := filepath.Join(t.TempDir(), "usr", "src")
	log := gbytes.NewBuffer()
	command := p.command(t, "exec", "--driver-container", "--driver-sources="+sources, "--", "sh", "-c",
		`test -d "$0" && echo built with $POD_UID`, sources)
	command.Env = append(os.Environ(), "POD_UID=mine")
	out := &bytes.Buffer{}
	command.Stdout, command.Stderr = out, log
	ready := func(uid string) {
		file := filepath.Join(p.markers, ".driver-ctr-ready")
		g.Expect(os.WriteFile(file+".tmp", []byte("GDS_ENABLED: true\nDRIVER_INSTANCE: "+uid+"\n"), 0o600)).To(Succeed())
		g.Expect(os.Rename(file+".tmp", file)).To(Succeed())
	}
	ready("another")
	g.Expect(command.Start()).To(Succeed())
	done := make(chan error, 1)
	go func() { done <- command.Wait() }()
	g.Eventually(log, 10*time.Second).Should(gbytes.Say("is of another pod"))
	ready("mine")
	g.Expect(os.MkdirAll(sources, 0o700)).To(Succeed())
	ready("mine")
	g.Eventually(done, 10*time.Second).Should(Receive(BeNil()))
	g.Expect(out.String()).To(Equal("built with mine\n"))
}

func TestExecRefusesToWaitForTheDriverContainerOfNoPod(t *testing.T) {
	g := NewWithT(t)
	p := newPod(t)
	command := p.command(t, "exec", "--driver-container", "--", "true")
	command.Env = []string{"PATH=" + os.Getenv("PATH")}
	out, err := command.CombinedOutput()
	g.Expect(err).To(HaveOccurred())
	g.Expect(string(out)).To(ContainSubstring("POD_UID is not set; set it from the field metadata.uid"))
	out, err = p.command(t, "exec", "--driver-container", "--marker=toolkit", "--", "true").CombinedOutput()
	g.Expect(err).To(HaveOccurred())
	g.Expect(string(out)).To(ContainSubstring("none of the others can be"))
}
