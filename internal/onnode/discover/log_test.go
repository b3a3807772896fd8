package discover

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
)

// Two failures have one reason if only the port of the connection differs.
func TestReasonOfAFailure(t *testing.T) {
	g := NewWithT(t)
	refused := func(port int) error {
		return fmt.Errorf("read the Node: %w", &net.OpError{
			Op: "dial", Net: "tcp", Source: &net.TCPAddr{Port: port}, Err: errors.New("connection refused"),
		})
	}
	g.Expect(reasonOf(refused(1))).To(Equal("dial: connection refused"))
	g.Expect(reasonOf(refused(2))).To(Equal(reasonOf(refused(1))))
	g.Expect(reasonOf(errors.New("no right"))).To(Equal("no right"))
}

// A list of stale labels is logged when it changes, and what is written each time.
func TestWhatIsLoggedAboutLabels(t *testing.T) {
	g, logged := NewWithT(t), &bytes.Buffer{}
	r := &runner{Discovery: Discovery{Log: slog.New(slog.NewTextHandler(logged, nil))}}
	for _, stale := range [][]string{{"a"}, {"a"}, {"a", "b"}, nil, {"a"}} {
		r.report(changes{stale: stale})
	}
	g.Expect(strings.Count(logged.String(), "are stale")).To(Equal(3))
	g.Expect(logged.String()).To(ContainSubstring(`labels="a, b"`))
	logged.Reset()
	r.reportChanges(changes{patch: nodeapi.NodeChanges{Labels: map[string]*string{
		"d": nil, "c": nil, "b": new("2"), "a": new("1"),
	}}})
	g.Expect(logged.String()).To(ContainSubstring(`set="a=1,b=2" removed=c,d`))
}
