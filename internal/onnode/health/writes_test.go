package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
)

// writes is a Node that records when it was written, by the clock of a bubble.
type writes struct {
	at    []time.Time
	costs []int
	last  string
	// reported is when a fault was first reported.
	reported time.Time
	// failing is how many of the next writes fail.
	failing int
}

func (*writes) AwaitNode(ctx context.Context, _, _ string, _ func(nodeapi.Node) bool) error {
	<-ctx.Done()
	return ctx.Err()
}

func (*writes) Node(context.Context, string) (nodeapi.Node, error) { return nodeapi.Node{}, nil }

func (w *writes) PatchNode(_ context.Context, _ string, changes nodeapi.NodeChanges) error {
	if w.failing > 0 {
		w.failing--
		return errors.New("the API server is being replaced")
	}
	var before gpuhealth.Report
	if len(w.at) > 0 {
		before, _ = gpuhealth.Decode(w.last)
	}
	w.at, w.last = append(w.at, time.Now()), *changes.Annotations[labels.GPUHealth]
	after, err := gpuhealth.Decode(w.last)
	w.costs = append(w.costs, costOf(before, after))
	if w.reported.IsZero() && len(after.Faults) > 0 {
		w.reported = time.Now()
	}
	return err
}

// mostInAMinute returns how many writes there are at most within a minute, with those of the operator that follow.
func (w *writes) mostInAMinute() int {
	most := 0
	for i, from := range w.at {
		count := 0
		for j, at := range w.at[i:] {
			if at.Sub(from) < time.Minute {
				count += 1 + w.costs[i+j]
			}
		}
		most = max(most, count)
	}
	return most
}

// costOf is how many writes of the operator may follow from a report after another one: of the condition and an Event
// about other faults, and an Event about other notes. The first report of a boot makes the condition.
func costOf(before, after gpuhealth.Report) int {
	cost := 0
	switch {
	case !slices.Equal(before.Faults, after.Faults):
		cost = 2
	case before.Boot != after.Boot:
		cost = 1
	}
	if !slices.Equal(before.Notes, after.Notes) {
		cost++
	}
	return cost
}

// However fast GPUs fail one after the other, with errors of programs in between, there are at most five writes a
// minute in all.
func TestGPUsThatFailOneAfterTheOther(t *testing.T) {
	for name, every := range map[string]time.Duration{
		"each second": time.Second, "each 5 seconds": 5 * time.Second, "each 20 seconds": 20 * time.Second,
		"each 70 seconds": 70 * time.Second,
	} {
		for _, programs := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, errors of programs: %t", name, programs), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { failOneAfterTheOther(t, every, programs) })
			})
		}
	}
}

func failOneAfterTheOther(t *testing.T, every time.Duration, programs bool) {
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
		if programs {
			_, err := io.WriteString(write, recordOf(2*i+1, line{after: time.Since(began), text: of(pci, 13, "x")}))
			g.Expect(err).NotTo(HaveOccurred())
		}
		_, err := io.WriteString(write, recordOf(2*i+2, line{after: time.Since(began), text: of(pci, 79, "x")}))
		g.Expect(err).NotTo(HaveOccurred())
	}
	lasted := time.Since(began)
	time.Sleep(DefaultInterval + 2*DefaultDebounce)
	synctest.Wait()
	report, err := gpuhealth.Decode(api.last)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(report.Faults).To(HaveLen(gpus), "all are reported at most an interval later")
	if !programs {
		// The first GPU that fails may be in the first report of the boot.
		limit := max(every, DefaultUrgent) + 2*DefaultDebounce
		g.Expect(api.reported.Sub(began)).To(BeNumerically("<=", limit), "the first one")
	}
	t.Logf("%d GPUs within %s: %d writes of the agent, at most %d in a minute in all", gpus, lasted, len(api.at),
		api.mostInAMinute())
	g.Expect(api.mostInAMinute()).To(BeNumerically("<=", 5))
	cancel()
	g.Expect(<-done).To(Succeed())
}

// A report that could not be written is tried again soon, also the first of a boot whose faults differ from those of
// the one before, and the interval holds after the write that succeeds.
func TestAFailedWriteIsTriedAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		api := &writes{failing: 2}
		agent := New(Options{
			Node: "node-a", Boot: "boot-1", Booted: time.Now(), ProcRoot: t.TempDir(), API: api, Debounce: DefaultDebounce,
			Interval: DefaultInterval, Urgent: DefaultUrgent, Log: slog.New(slog.DiscardHandler),
		})
		read, write := io.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		began := time.Now()
		go func() { done <- agent.Run(ctx, read) }()
		_, err := io.WriteString(write, recordOf(1, line{text: of("0000:01:00.0", 79, "x")}))
		g.Expect(err).NotTo(HaveOccurred())
		time.Sleep(2*DefaultUrgent + 4*DefaultDebounce)
		synctest.Wait()
		g.Expect(api.at).To(HaveLen(1), "the third attempt")
		g.Expect(api.at[0].Sub(began)).To(BeNumerically(">=", 2*DefaultUrgent), "not at once")
		_, err = io.WriteString(write, recordOf(2, line{after: time.Since(began), text: of("0000:02:00.0", 79, "x")}))
		g.Expect(err).NotTo(HaveOccurred())
		time.Sleep(DefaultInterval + 2*DefaultDebounce)
		synctest.Wait()
		g.Expect(api.at).To(HaveLen(2))
		g.Expect(api.at[1].Sub(api.at[0])).To(BeNumerically(">=", DefaultInterval))
		cancel()
		g.Expect(<-done).To(Succeed())
	})
}
