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
	for name, test := range map[string]struct {
		// before is the pod of the driver container at first, and says is why the sidecar waits then.
		before, says string
	}{
		"of another pod":    {before: "another", says: "is of another pod"},
		"without its files": {before: "mine", says: "its root file system is not shared yet"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			p := newPod(t)
			sources := filepath.Join(t.TempDir(), "usr", "src")
			log, out := gbytes.NewBuffer(), &bytes.Buffer{}
			command := p.command(t, "exec", "--driver-container", "--driver-sources="+sources, "--", "sh", "-c",
				"echo built with $POD_UID")
			command.Env = append(os.Environ(), "POD_UID=mine")
			command.Stdout, command.Stderr = out, log
			ready := func(uid string) {
				file := filepath.Join(p.markers, ".driver-ctr-ready")
				g.Expect(os.WriteFile(file+".tmp", []byte("GDS_ENABLED: true\nDRIVER_INSTANCE: "+uid+"\n"), 0o600)).To(Succeed())
				g.Expect(os.Rename(file+".tmp", file)).To(Succeed())
			}
			ready(test.before)
			g.Expect(command.Start()).To(Succeed())
			g.Eventually(log, 10*time.Second).Should(gbytes.Say(test.says))
			g.Expect(os.MkdirAll(sources, 0o700)).To(Succeed())
			ready("mine")
			g.Expect(command.Wait()).To(Succeed())
			g.Expect(out.String()).To(Equal("built with mine\n"))
		})
	}
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
