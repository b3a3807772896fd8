package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/gpuhealth"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/xid"
)

const (
	// DefaultPort is the port of the metrics, and of the Service.
	DefaultPort = 8001
	// DefaultDebounce is the delay between an error and the report: several lines follow from one fault.
	DefaultDebounce = time.Second
	// DefaultInterval is the shortest time between two writes, so that there are at most five in a minute.
	DefaultInterval = 15 * time.Second
)

// Node reads and writes the agent's Node.
type Node interface {
	Node(ctx context.Context, name string) (nodeapi.Node, error)
	PatchNode(ctx context.Context, name string, changes nodeapi.NodeChanges) error
}

// Options configure an Agent.
type Options struct {
	// Node is the name of the node.
	Node string
	// Boot is the ID of this boot, and Booted its time by the clock of the kernel log.
	Boot   string
	Booted time.Time
	// ProcRoot is where procfs is mounted here.
	ProcRoot string
	// API is the API server.
	API Node
	// Debounce and Interval are normally the defaults.
	Debounce, Interval time.Duration
	Log                *slog.Logger
}

// Agent reports the faults of GPUs. It is a prometheus.Collector.
type Agent struct {
	options Options
	names   *names
	metrics *descriptions
	// changed has an element if records have been read since the last report.
	changed chan struct{}

	mu sync.Mutex
	// state is nil until the Node has been read.
	state        *state
	lost, writes int
}

// New returns an agent; Run runs it.
func New(options Options) *Agent {
	return &Agent{
		options: options, names: &names{procRoot: options.ProcRoot, known: map[string]string{}},
		metrics: describe(options.Node), changed: make(chan struct{}, 1),
	}
}

// Run reads the kernel log from its beginning, in the format of /dev/kmsg, and reports until ctx ends; then it closes
// the log and returns nil. It fails if the log cannot be read. While the API server cannot be reached, it retries.
func (a *Agent) Run(ctx context.Context, log io.ReadCloser) error {
	stop := context.AfterFunc(ctx, func() { _ = log.Close() })
	defer stop()
	written, ok := a.begin(ctx)
	if !ok {
		return nil
	}
	reporting, end := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { a.report(reporting, written) })
	err := a.read(log)
	end()
	done.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// begin reads what an agent has reported before, and returns it; false if ctx has ended.
func (a *Agent) begin(ctx context.Context) (gpuhealth.Report, bool) {
	for {
		node, err := a.options.API.Node(ctx, a.options.Node)
		if err == nil {
			reported, err := gpuhealth.Decode(node.Metadata.Annotations[labels.GPUHealth])
			if err != nil {
				// There is none, or it is replaced.
				reported = gpuhealth.Report{}
			}
			a.mu.Lock()
			a.state = newState(a.options.Boot, reported)
			a.mu.Unlock()
			return reported, true
		}
		a.options.Log.Warn("the Node cannot be read; trying again", "error", err.Error())
		if !sleep(ctx, a.options.Interval) {
			return gpuhealth.Report{}, false
		}
	}
}

// read takes the records until the log cannot be read.
func (a *Agent) read(from io.Reader) error {
	log := newKernelLog(from, a.recordsLost)
	for {
		found, err := log.next()
		if err != nil {
			return err
		}
		event, is := xid.Parse(found.text, found.fromKernel)
		if !is {
			continue
		}
		a.mu.Lock()
		a.state.observe(found.sequence, event, a.options.Booted.Add(found.at))
		a.mu.Unlock()
		select {
		case a.changed <- struct{}{}:
		default:
		}
	}
}

func (a *Agent) recordsLost() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lost++
}

// report writes each new report until ctx ends, and the first one at once: it shows that the agent runs.
func (a *Agent) report(ctx context.Context, written gpuhealth.Report) {
	for {
		if !sleep(ctx, a.options.Debounce) {
			return
		}
		wrote, err := a.write(ctx, &written)
		if err != nil && ctx.Err() == nil {
			a.options.Log.Warn("the faults of GPUs cannot be reported; trying again", "error", err.Error())
		}
		if (wrote || err != nil) && !sleep(ctx, a.options.Interval-a.options.Debounce) {
			return
		}
		if err != nil {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-a.changed:
		}
	}
}

// write writes the annotation if the faults are others than the written ones, and reports whether it has tried.
func (a *Agent) write(ctx context.Context, written *gpuhealth.Report) (bool, error) {
	a.mu.Lock()
	report := a.state.report()
	a.mu.Unlock()
	a.names.complete(report.Faults)
	next, err := report.Encode()
	if err != nil {
		return false, err
	}
	if sameFaults(report, *written) {
		return false, nil
	}
	a.mu.Lock()
	a.writes++
	a.mu.Unlock()
	if err := a.options.API.PatchNode(ctx, a.options.Node, nodeapi.NodeChanges{
		Annotations: map[string]*string{labels.GPUHealth: &next},
	}); err != nil {
		return true, fmt.Errorf("write the annotation %s: %w", labels.GPUHealth, err)
	}
	a.options.Log.Info("reported the faults of GPUs", "count", len(report.Faults), "faults", report.Text())
	*written = report
	return true, nil
}

// sameFaults reports whether two reports are of the same boot and have the same faults.
func sameFaults(a, b gpuhealth.Report) bool {
	a.Sequence, b.Sequence = 0, 0
	one, errA := a.Encode()
	other, errB := b.Encode()
	return errors.Join(errA, errB) == nil && one == other
}

// sleep waits, and reports whether ctx goes on.
func sleep(ctx context.Context, duration time.Duration) bool {
	timer := time.NewTimer(max(duration, 0))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
