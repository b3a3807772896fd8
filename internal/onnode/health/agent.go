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

	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/wait"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/xid"
)

const (
	// DefaultPort is the port of the metrics, and of the Service.
	DefaultPort = 8001
	// DefaultDebounce is the delay between an error and the report: several lines follow from one fault.
	DefaultDebounce = time.Second
	// DefaultInterval is the time from one write to the next. After a quiet one, such as the first of a boot if the one
	// before had neither faults nor notes, a worse fault is written DefaultUrgent after it. A write that fails is tried
	// again DefaultUrgent after it.
	//
	// Each write of the agent may cost writes of the operator: of the condition, an Event on it, and one on new notes.
	// A quiet write costs the condition at most, and the urgent one after it has no new notes: so both, and any other
	// write alone, are at most five writes a minute, however many GPUs fail one after the other.
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
	// Debounce, Interval and Urgent are normally the defaults. Urgent is not longer than Interval.
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
	// seen: the Node has had the annotation last. removed: someone has removed it since the last report.
	seen, removed bool
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
	done.Go(func() { a.follow(reporting) })
	if a.options.NVML.Every > 0 {
		done.Go(func() { a.watchGPUs(reporting) })
	}
	err := a.takeRecords(log)
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
			found, there := node.Metadata.Annotations[labels.GPUHealth]
			// Without a report, or with a malformed one that is replaced, it is empty.
			reported, _ := gpuhealth.Decode(found)
			a.mu.Lock()
			a.state, a.seen = newState(a.options.Boot, a.options.NVML.Window, reported), there
			a.mu.Unlock()
			return reported, true
		}
		a.options.Log.Warn("the Node cannot be read; trying again", "error", err.Error())
		if !wait.Sleep(ctx, a.options.Interval) {
			return gpuhealth.Report{}, false
		}
	}
}

// takeRecords takes the records until the log cannot be read.
func (a *Agent) takeRecords(from io.Reader) error {
	log := newKernelLog(from, a.noteLost)
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
		a.state.takeEvent(found.sequence, event, a.options.Booted.Add(found.at))
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

func (a *Agent) noteLost() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lost++
}

// report writes each new report until ctx ends, and the first one at once: it shows that the agent runs.
func (a *Agent) report(ctx context.Context, reported gpuhealth.Report) {
	last := written{report: reported}
	for wait.Sleep(ctx, a.options.Debounce) {
		due, err := a.write(ctx, &last)
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

// written is what was written last.
type written struct {
	report gpuhealth.Report
	// tried is the time of the last attempt. quiet: it had the faults and notes of the one before, at a regular time.
	// failed: the API server did not take it.
	tried         time.Time
	quiet, failed bool
}

// due returns when the report may be written.
func (w *written) due(report gpuhealth.Report, interval, urgent time.Duration) time.Time {
	if w.failed || w.quiet && isWorse(report, w.report) && slices.Equal(report.Notes, w.report.Notes) {
		return w.tried.Add(urgent)
	}
	return w.tried.Add(interval)
}

// noteAttempt records an attempt to write the report.
func (w *written) noteAttempt(report gpuhealth.Report, now time.Time, interval time.Duration) {
	w.quiet = !now.Before(w.tried.Add(interval)) && slices.Equal(report.Faults, w.report.Faults) &&
		slices.Equal(report.Notes, w.report.Notes)
	w.tried, w.failed = now, false
}

// takeReport returns the report of the state, and when it changes by itself; zero if it does not.
func (a *Agent) takeReport(last *written, now time.Time) (report gpuhealth.Report, due time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.removed {
		// If it was the operator, which ends this agent, too, the annotation is to stay away: so not at once.
		*last = written{tried: now}
		a.removed = false
	}
	due = a.state.settle(now)
	return a.state.report(), due
}

// write writes the annotation if it is due: another report than the written one, and the last attempt is long enough
// ago. It returns when to look again, even if nothing happens until then; zero if there is no need.
func (a *Agent) write(ctx context.Context, last *written) (due time.Time, err error) {
	now := time.Now()
	report, due := a.takeReport(last, now)
	a.names.complete(&report)
	next, err := report.Encode()
	if err != nil {
		return due, err
	}
	if same(report, last.report) {
		return due, nil
	}
	if allowed := last.due(report, a.options.Interval, a.options.Urgent); now.Before(allowed) {
		return earlier(due, allowed), nil
	}
	last.noteAttempt(report, now, a.options.Interval)
	a.mu.Lock()
	a.writes++
	a.mu.Unlock()
	if err := a.options.API.PatchNode(ctx, a.options.Node, nodeapi.NodeChanges{
		Annotations: map[string]*string{labels.GPUHealth: &next},
	}); err != nil {
		last.failed = true
		retry := last.due(report, a.options.Interval, a.options.Urgent)
		return earlier(due, retry), fmt.Errorf("write the annotation %s: %w", labels.GPUHealth, err)
	}
	a.options.Log.Info("reported the faults of GPUs", "count", len(report.Faults), "faults", report.Text(),
		"notes", len(report.Notes))
	last.report = report
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
