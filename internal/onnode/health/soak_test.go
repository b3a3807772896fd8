package health

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nvml"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/xid"
	"github.com/clusterpolicy/gpu-operator/test/heap"
)

// quietNode is a Node that keeps nothing of what is written.
type quietNode struct {
	writes
	count int
}

func (n *quietNode) PatchNode(context.Context, string, nodeapi.NodeChanges) error {
	n.count++
	return nil
}

// soakMachine is a machine with a driver and eight GPUs, whose program of sessions prints the sample in a file.
func soakMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{WithT: NewWithT(t), t: t, dir: t.TempDir(), boot: "boot-1"}
	for i := range 8 {
		m.plug(fmt.Sprintf("0000:0%d:00.0", i), "\xde\x10\x00\x23")
	}
	m.driverReady()
	m.write("program", "#!/bin/sh\nexec cat '"+m.path("sample")+"'\n")
	m.Expect(os.Chmod(m.path("program"), 0o755)).To(Succeed())
	return m
}

// The memory of the agent does not grow in four days with an error each minute, of eight GPUs and of changing programs,
// with resets, samples of NVML each minute, of which sessions read one each half hour, and scrapes. With -short in two.
func TestAgentDoesNotGrow(t *testing.T) {
	days := 4
	if testing.Short() {
		days = 2
	}
	synctest.Test(t, func(t *testing.T) {
		g, m := NewWithT(t), soakMachine(t)
		api, began := &quietNode{}, time.Now()
		agent := New(Options{
			Node: "node-a", Boot: "boot-1", Booted: began, ProcRoot: t.TempDir(), API: api, Debounce: DefaultDebounce,
			Interval: DefaultInterval, Urgent: DefaultUrgent, Log: slog.New(slog.DiscardHandler),
			NVML: NVML{
				Every: 30 * time.Minute, Limit: DefaultSessionLimit, Confirm: 30 * time.Minute, Window: DefaultWindow,
				Program: m.path("program"), Markers: m.markers(), SysRoot: m.path("sys"),
			},
		})
		registry := prometheus.NewPedanticRegistry()
		g.Expect(registry.Register(agent)).To(Succeed())
		read, write := io.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- agent.Run(ctx, read) }()
		var settled int64
		var goroutines int
		numbers := []int{13, 31, 43, 45, 48, 63, 64, 74, 79, 94, 95, 119, 120, 154, 1000}
		for minute := range days * 24 * 60 {
			pci := fmt.Sprintf("0000:0%d:00.0", minute%8)
			program := fmt.Sprintf("pid=%d, name=train-%d, Ch 00000001", minute, minute)
			text := of(pci, numbers[minute%len(numbers)]+minute%7, program)
			if minute%50 == 49 {
				text = xid.ResetLine(pci)
			}
			_, err := io.WriteString(write, recordOf(minute+1, line{after: time.Since(began), text: text}))
			g.Expect(err).NotTo(HaveOccurred())
			if minute%30 == 0 {
				sample, err := json.Marshal(sampleAt(minute))
				g.Expect(err).NotTo(HaveOccurred())
				m.write("sample", string(sample))
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			agent.mu.Lock()
			agent.state.measure(sampleAt(minute), time.Now(), func(string) bool { return false })
			agent.mu.Unlock()
			if minute%30 == 0 {
				_, err := registry.Gather()
				g.Expect(err).NotTo(HaveOccurred())
			}
			if minute == 24*60 {
				settled, goroutines = heap.Live(), runtime.NumGoroutine()
			}
		}
		grown := heap.Live() - settled
		t.Logf("%d writes; %d kB more than after a day", api.count, grown>>10)
		g.Expect(grown).To(BeNumerically("<", 100<<10), "bytes")
		g.Expect(runtime.NumGoroutine()).To(BeNumerically("<=", goroutines))
		g.Expect(api.count).To(BeNumerically(">", 75*days))
		agent.mu.Lock()
		g.Expect(agent.counted["ok"]).To(BeNumerically(">", 45*days), "of the sessions %v", agent.counted)
		agent.mu.Unlock()
		cancel()
		g.Expect(<-done).To(Succeed())
	})
}

// sampleAt is what a session shows of eight GPUs in this minute, of which the counters change.
func sampleAt(minute int) nvml.Sample {
	sample := nvml.Sample{Code: nvml.Success}
	for i := range 8 {
		nanos := uint64(minute) * uint64(i) * uint64(time.Second) //nolint:gosec // not negative
		sample.GPUs = append(sample.GPUs, nvml.GPU{
			PCI: fmt.Sprintf("0000:0%d:00.0", i), UUID: fmt.Sprintf("GPU-00000000-0000-0000-0000-00000000000%d", i),
			Code: nvml.Success, ThrottledNanos: &nanos, Link: &nvml.Link{Width: 8 + minute/20%2*8, MaxWidth: 16},
		})
	}
	return sample
}
