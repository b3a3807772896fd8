package simulator

import (
	"bufio"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/test/simulator/host"
)

func TestAnXidIsLoggedOnce(t *testing.T) {
	g := NewWithT(t)
	machine, err := host.New(host.Options{
		Node: "n", Dir: filepath.Join(t.TempDir(), "n"), APIServer: "https://127.0.0.1:6443",
		Programs: host.Programs{StandIn: os.DevNull},
	})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(machine.Close()).To(Succeed()) })
	log, err := os.Open(machine.Path("/dev/kmsg"))
	g.Expect(err).NotTo(HaveOccurred())
	defer log.Close()
	g.Expect(log.SetReadDeadline(time.Now().Add(10 * time.Second))).To(Succeed())
	n := &node{name: "n", host: machine, object: &corev1.Node{}}
	for _, xid := range []string{"", "79", "79", "48, DBE", "", "", "79"} {
		n.object.Annotations = map[string]string{XidAnnotation: xid}
		g.Expect(n.logXid()).To(Succeed())
	}
	lines := bufio.NewScanner(log)
	for _, want := range []string{
		`^3,1,\d+,-;NVRM: Xid \(PCI:0000:10:00.0\): 79$`, `^3,2,\d+,-;NVRM: Xid \(PCI:0000:10:00.0\): 48, DBE$`,
		`^11,3,\d+,-;gpu-operator: GPU 0000:10:00.0 has been reset$`, `^3,4,\d+,-;NVRM: Xid \(PCI:0000:10:00.0\): 79$`,
	} {
		g.Expect(lines.Scan()).To(BeTrue())
		g.Expect(lines.Text()).To(MatchRegexp(want))
	}
	n.host, n.object.Annotations = nil, map[string]string{XidAnnotation: "13"}
	g.Expect(n.logXid()).To(Succeed(), "a node without a machine has no kernel log")
}
