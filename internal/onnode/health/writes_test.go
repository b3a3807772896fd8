package health

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/gpuhealth"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
)

// writes is a Node that records when it was written, by the clock of a bubble.
type writes struct {
	at   []time.Time
	last string
}

func (*writes) AwaitNode(ctx context.Context, _, _ string, _ func(nodeapi.Node) bool) error {
	<-ctx.Done()
	return ctx.Err()
}

func (*writes) Node(context.Context, string) (nodeapi.Node, error) { return nodeapi.Node{}, nil }

func (w *writes) PatchNode(_ context.Context, _ string, changes nodeapi.NodeChanges) error {
	w.at, w.last = append(w.at, time.Now()), *changes.Annotations[labels.GPUHealth]
	return nil
}

// mostInAMinute returns how many writes there are at most within a minute.
func (w *writes) mostInAMinute() int {
	most := 0
	for i, from := range w.at {
		count := 0
		for _, at := range w.at[i:] {
			if at.Sub(from) < time.Minute {
				count++
			}
		}
		most = max(most, count)
	}
	return most
}

// However fast GPUs fail one after the other, there are two writes a minute: a regular one and an urgent one.
func TestGPUsThatFailOneAfterTheOther(t *testing.T) {
	for name, every := range map[string]time.Duration{
		"each second": time.Second, "each 5 seconds": 5 * time.Second, "each 20 seconds": 20 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { failOneAfterTheOther(t, every) })
		})
	}
}

func failOneAfterTheOther(t *testing.T, every time.Duration) {
	g := NewWithT(t)
	api, procRoot := &writes{}, t.TempDir()
	agent := New(Options{
		Node: "node-a", Boot: "boot-1", Booted: time.Now(), ProcRoot: procRoot, API: api, Debounce: DefaultDebounce,
		Interval: DefaultInterval, Urgent: DefaultUrgent, Log: slog.New(slog.DiscardHandler),
	})
	read, write := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- agent.Run(ctx, read) }()
	const gpus = 32
	began := time.Now()
	for i := range gpus {
		time.Sleep(every)
		pci := "0000:" + string("0123456789abcdef"[i/16]) + string("0123456789abcdef"[i%16]) + ":00.0"
		_, err := io.WriteString(write, recordOf(i+1, line{after: time.Since(began), text: of(pci, 79, "x")}))
		g.Expect(err).NotTo(HaveOccurred())
	}
	lasted := time.Since(began)
	time.Sleep(DefaultInterval + 2*DefaultDebounce)
	synctest.Wait()
	report, err := gpuhealth.Decode(api.last)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(report.Faults).To(HaveLen(gpus), "all are reported at most an interval later")
	g.Expect(api.at[1].Sub(began)).To(BeNumerically("<=", max(every, DefaultUrgent)+2*DefaultDebounce), "the first one")
	t.Logf("%d GPUs within %s: %d writes, at most %d in a minute", gpus, lasted, len(api.at), api.mostInAMinute())
	g.Expect(api.mostInAMinute()).To(BeNumerically("<=", 2))
	cancel()
	g.Expect(<-done).To(Succeed())
}
