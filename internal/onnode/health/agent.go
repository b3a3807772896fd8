package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
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
	// DefaultInterval is the shortest time between two writes, and DefaultUrgent the shortest time to one with a worse
	// fault: what a write costs beyond itself, such as a condition and an Event, is to stay below five a minute.
	DefaultInterval = time.Minute
	DefaultUrgent   = 15 * time.Second
)

// Node reads, watches and writes the agent's Node.
type Node interface {
	AwaitNode(ctx context.Context, name, version string, enough func(nodeapi.Node) bool) error
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
	// Debounce, Interval and Urgent are normally the defaults.
	Debounce, Interval, Urgent time.Duration
	// NVML configures the sessions with NVML.
	NVML NVML
	Log  *slog.Logger
}

// Agent reports the faults of GPUs. It is a prometheus.Collector.
type Agent struct {
	options Options
	names   *names
	metrics *descriptions
	// sessions with NVML, and whether there may be any.
	sessions *sessions
	pause    *pause
	excluded *exclusions
	// changed has an element if records have been read since the last report.
	changed chan struct{}

	mu sync.Mutex
	// state is nil until the Node has been read.
	state        *state
	lost, writes int
	// counted are the sessions by their outcome, lastSession is how long the last one took, and pausedBy why there are
	// none now.
	counted     map[string]int
	lastSession time.Duration
	pausedBy    string
}

// New returns an agent; Run runs it.
func New(options Options) *Agent {
	return &Agent{
		options: options, names: &names{procRoot: options.ProcRoot, known: map[string]string{}},
		metrics: describe(options.Node), changed: make(chan struct{}, 1), counted: map[string]int{}, pause: newPause(),
		sessions: newSessions(options.NVML.Program, options.NVML.Limit),
		excluded: &exclusions{procRoot: options.ProcRoot},
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
	if a.options.NVML.Every > 0 {
		done.Go(func() { a.follow(reporting) })
		done.Go(func() { a.watchGPUs(reporting) })
	}
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
			a.state = newState(a.options.Boot, a.options.NVML.Window, reported)
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
		a.wake()
	}
}

// wake makes the reports look again.
func (a *Agent) wake() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

func (a *Agent) recordsLost() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lost++
}

// report writes each new report until ctx ends, and the first one at once: it shows that the agent runs.
func (a *Agent) report(ctx context.Context, written gpuhealth.Report) {
	var tried time.Time
	for sleep(ctx, a.options.Debounce) {
		due, err := a.write(ctx, &written, &tried)
		if err != nil && ctx.Err() == nil {
			a.options.Log.Warn("the faults of GPUs cannot be reported; trying again", "error", err.Error())
		}
		var timer <-chan time.Time
		if !due.IsZero() {
			timer = time.After(time.Until(due))
		}
		select {
		case <-ctx.Done():
			return
		case <-timer:
		case <-a.changed:
		}
	}
}

// write writes the annotation if it is due: another report than the written one, and the last attempt is long enough
// ago. It returns when to look again, even if nothing happens until then; zero if there is no need.
func (a *Agent) write(ctx context.Context, written *gpuhealth.Report, tried *time.Time) (due time.Time, err error) {
	now := time.Now()
	a.mu.Lock()
	due = a.state.settle(now)
	report := a.state.report()
	a.mu.Unlock()
	a.names.complete(&report)
	next, err := report.Encode()
	if err != nil {
		return due, err
	}
	if same(report, *written) {
		return due, nil
	}
	gap := a.options.Interval
	if isWorse(report, *written) {
		gap = a.options.Urgent
	}
	if allowed := tried.Add(gap); now.Before(allowed) {
		return earlier(due, allowed), nil
	}
	*tried = now
	a.mu.Lock()
	a.writes++
	a.mu.Unlock()
	if err := a.options.API.PatchNode(ctx, a.options.Node, nodeapi.NodeChanges{
		Annotations: map[string]*string{labels.GPUHealth: &next},
	}); err != nil {
		return earlier(due, now.Add(gap)), fmt.Errorf("write the annotation %s: %w", labels.GPUHealth, err)
	}
	a.options.Log.Info("reported the faults of GPUs", "count", len(report.Faults), "faults", report.Text(),
		"notes", len(report.Notes))
	*written = report
	return due, nil
}

// earlier returns the earlier one of two times, of which the first may be zero, for none.
func earlier(one, other time.Time) time.Time {
	if one.IsZero() || other.Before(one) {
		return other
	}
	return one
}

// same reports whether two reports differ in nothing but how far the kernel log was read.
func same(a, b gpuhealth.Report) bool {
	a.Sequence, b.Sequence = 0, 0
	one, errA := a.Encode()
	other, errB := b.Encode()
	return errors.Join(errA, errB) == nil && one == other
}

// isWorse reports whether a device has a worse fault than was reported, or nothing was reported in this boot.
func isWorse(report, written gpuhealth.Report) bool {
	before := map[string]gpuhealth.Class{}
	for _, fault := range written.Faults {
		before[fault.PCI] = fault.Class
	}
	return report.Boot != written.Boot || slices.ContainsFunc(report.Faults, func(f gpuhealth.Fault) bool {
		return f.Class.Compare(before[f.PCI]) > 0
	})
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
