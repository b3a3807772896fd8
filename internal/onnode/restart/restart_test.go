package restart_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/restart"
)

// TestMain is the listening process where LISTEN_ON is set.
func TestMain(m *testing.M) {
	if socket := os.Getenv("LISTEN_ON"); socket != "" {
		listener, err := net.Listen("unix", socket)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		for {
			if _, err := listener.Accept(); err != nil {
				os.Exit(1)
			}
		}
	}
	os.Exit(m.Run())
}

// listen starts a process that listens on the socket, and returns a function that ends it.
func listen(g Gomega, socket string) (end func()) {
	self, err := os.Executable()
	g.Expect(err).NotTo(HaveOccurred())
	process := exec.Command(self)
	process.Env = append(os.Environ(), "LISTEN_ON="+socket)
	g.Expect(process.Start()).To(Succeed())
	g.Eventually(func() error {
		connection, err := net.Dial("unix", socket)
		if err == nil {
			err = connection.Close()
		}
		return err
	}, "10s", "5ms").Should(Succeed())
	return func() {
		_ = process.Process.Kill()
		_ = process.Wait()
		_ = os.Remove(socket)
	}
}

func TestSince(t *testing.T) {
	g := NewWithT(t)
	socket := filepath.Join(t.TempDir(), "runtime.sock")
	note := filepath.Join(t.TempDir(), "started")

	_, noted, err := restart.Noted(note)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(noted).To(BeFalse())
	g.Expect(restart.Since(socket, "/proc", 0)).To(MatchError(ContainSubstring("no process accepts connections")))

	end := listen(g, socket)
	// The start of a process has a resolution of a hundredth of a second.
	time.Sleep(20 * time.Millisecond)
	g.Expect(restart.Note(note)).To(Succeed())
	at, noted, err := restart.Noted(note)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(noted).To(BeTrue())
	g.Expect(restart.Since(socket, "/proc", at)).To(MatchError(ContainSubstring("has not restarted yet")))
	g.Expect(restart.Since(socket, t.TempDir(), at)).To(MatchError(ContainSubstring("does the pod have hostPID?")))

	end()
	g.Expect(restart.Since(socket, "/proc", at)).To(MatchError(ContainSubstring("no process accepts connections")))
	time.Sleep(20 * time.Millisecond)
	defer listen(g, socket)()
	g.Expect(restart.Since(socket, "/proc", at)).To(Succeed())
}

func TestProcessesWithOddNames(t *testing.T) {
	const rest = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 %s 20 21"
	tests := map[string]struct {
		stat  string
		after time.Duration
		err   string
	}{
		"a name with a parenthesis": {stat: "1 (a) b (c)" + fmt.Sprintf(rest, "9223372036")},
		"a start after that time":   {stat: "1 (a)" + fmt.Sprintf(rest, "6"), after: 50 * time.Millisecond},
		"a start at that time": {
			stat: "1 (a)" + fmt.Sprintf(rest, "5"), after: 50 * time.Millisecond, err: "has not restarted yet",
		},
		"no number": {stat: "1 (a)" + fmt.Sprintf(rest, "x"), err: "is malformed"},
		"too short": {stat: "1 (a) S 1 2", err: "it has 3 fields after the name"},
		"short of one field": {
			stat: "1 (a)" + strings.TrimSuffix(rest, " %s 20 21"), err: "it has 19 fields after the name",
		},
		"nothing": {stat: "", err: "it has 0 fields after the name"},
	}
	socket := filepath.Join(t.TempDir(), "runtime.sock")
	listener, err := net.Listen("unix", socket)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	defer func() { _ = listener.Close() }()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			root := t.TempDir()
			dir := filepath.Join(root, fmt.Sprint(os.Getpid()))
			g.Expect(os.Mkdir(dir, 0o755)).To(Succeed())
			g.Expect(os.WriteFile(filepath.Join(dir, "stat"), []byte(test.stat), 0o644)).To(Succeed())
			err := restart.Since(socket, root, test.after)
			if test.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(test.err)))
		})
	}
}

func TestANoteThatCannotBeRead(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	note := filepath.Join(dir, "started")
	g.Expect(os.WriteFile(note, []byte("soon"), 0o644)).To(Succeed())
	for file, message := range map[string]string{note: "read " + note + ": ", dir: "is a directory"} {
		at, noted, err := restart.Noted(file)
		g.Expect(at).To(BeZero())
		g.Expect(noted).To(BeFalse())
		g.Expect(err).To(MatchError(ContainSubstring(message)))
	}
	g.Expect(restart.Note(filepath.Join(note, "below"))).To(MatchError(ContainSubstring("create the directory of")))
}
