package health

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nvml"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/pci"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/validate"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/wait"
)

const (
	// DefaultSessions is the time between two sessions with NVML.
	DefaultSessions = time.Minute
	// DefaultSessionLimit is how long a session may take. Without the persistence mode of the driver it initializes each
	// GPU.
	DefaultSessionLimit = 30 * time.Second
	// DefaultConfirm is the time to the next session if that may confirm something.
	DefaultConfirm = 10 * time.Second
)

// NVML configures the sessions with NVML.
type NVML struct {
	// Every is the time between two sessions; 0 for none. Limit is how long one may take, and Confirm the time to the next
	// one if that may confirm something.
	Every, Limit, Confirm time.Duration
	// Window is normally DefaultWindow.
	Window time.Duration
	// Program is gpu-node-cuda.
	Program string
	// Markers shows whether the driver is validated, and where it is.
	Markers marker.Dir
	// SysRoot is where sysfs is mounted here.
	SysRoot string
}

// watchGPUs has sessions with NVML until ctx ends.
func (a *Agent) watchGPUs(ctx context.Context) {
	next := time.Duration(0)
	for wait.Sleep(ctx, next) {
		reason, changed := a.pause.get()
		if reason != "" {
			a.setPaused(reason)
			select {
			case <-ctx.Done():
			case <-changed:
			}
			next = 0
			continue
		}
		next = a.options.NVML.Every
		if a.runSession(ctx) {
			next = min(next, a.options.NVML.Confirm)
		}
	}
}

// runSession has one session, if the driver is ready. It reports whether another one soon could confirm something.
func (a *Agent) runSession(ctx context.Context) (confirm bool) {
	root, err := a.driverRoot()
	if err != nil {
		a.setPaused(pausedByDriver)
		return false
	}
	a.setPaused("")
	began := time.Now()
	addresses, err := a.addresses()
	if errors.Is(err, errSilent) {
		return a.take(nvml.Sample{}, err, began)
	}
	if err != nil {
		a.options.Log.Warn("the GPUs of the node cannot be listed", "error", err.Error())
	}
	if len(addresses) == 0 {
		return false
	}
	during, cancel := a.pause.during(ctx)
	defer cancel()
	began = time.Now()
	sample, err := a.sessions.run(during, append(driverArgs(root), addresses...)...)
	if err == nil {
		// The driver may have been taken away meanwhile, and then its answers mean nothing.
		if _, notReady := a.driverRoot(); notReady != nil || during.Err() != nil {
			err = errStopped
		}
	}
	return a.take(sample, err, began)
}

// take takes the result of a session.
func (a *Agent) take(sample nvml.Sample, failed error, began time.Time) (confirm bool) {
	a.mu.Lock()
	a.counted[outcomeOf(sample, failed)]++
	a.lastSession = time.Since(began)
	switch {
	case failed == nil:
		confirm = a.state.measure(sample, began, a.isGone)
	case errors.Is(failed, errHangs):
		// Certain at once: the program is there, and has been killed.
		a.state.driver.note(reasonHangs, began)
	case errors.Is(failed, errTimeout), errors.Is(failed, errSilent):
		a.state.driver.takeProblem(reasonHangs, began)
	case !errors.Is(failed, errStopped):
		a.state.driver.fail(began)
	}
	a.mu.Unlock()
	if failed != nil && !errors.Is(failed, errStopped) {
		a.options.Log.Warn("a session with NVML has shown nothing", "error", failed.Error())
	}
	for _, gpu := range sample.GPUs {
		a.names.learn(gpu.PCI, gpu.UUID)
	}
	a.wake()
	return confirm
}

// outcomeOf returns the value of the label of the metric that counts sessions.
func outcomeOf(sample nvml.Sample, err error) string {
	switch {
	case errors.Is(err, errStopped):
		return "stopped"
	case errors.Is(err, errTimeout), errors.Is(err, errSilent):
		return "timeout"
	case errors.Is(err, errHangs):
		return "hangs"
	case err != nil:
		return "failed"
	case sample.Code != nvml.Success:
		return fmt.Sprintf("code-%d", sample.Code)
	}
	return "ok"
}

// setPaused keeps why there are no sessions now; empty if there are.
func (a *Agent) setPaused(reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pausedBy = reason
}

// driverRoot returns where the root of the driver is mounted here. It fails while the driver is not validated: it may
// be about to be replaced, or still be installed.
func (a *Agent) driverRoot() (string, error) {
	assignments, err := a.options.NVML.Markers.Read(labels.MarkerDriver)
	if err != nil {
		return "", err
	}
	for _, assignment := range assignments {
		if assignment.Key == labels.DriverRootMountKey && filepath.IsAbs(assignment.Value) {
			return filepath.Clean(assignment.Value), nil
		}
	}
	return "", fmt.Errorf("the marker of the driver has no %s", labels.DriverRootMountKey)
}

// driverArgs returns the arguments of the program for a driver in this root: it runs in it, or, where a driver has no C
// library of its own, with that of this container.
func driverArgs(root string) []string {
	if library, bare := validate.BareLibrary(root, nvml.Library); bare {
		return []string{"nvml", "--library=" + library}
	}
	return []string{"nvml", "--root=" + root}
}

// addresses returns the GPUs to ask for: those that the driver is bound to, and those that have answered and are not on
// the bus any more. It fails with errSilent if the driver does not answer.
func (a *Agent) addresses() ([]string, error) {
	bound, err := pci.BoundGPUs(a.options.NVML.SysRoot)
	excluded, answered := a.excluded.among(bound)
	if !answered {
		return nil, errSilent
	}
	bound = slices.DeleteFunc(bound, func(address string) bool { return slices.Contains(excluded, address) })
	a.mu.Lock()
	defer a.mu.Unlock()
	for address, d := range a.state.devices {
		if !d.nvml.at.IsZero() && !slices.Contains(bound, address) && a.isGone(address) {
			bound = append(bound, address)
		}
	}
	slices.Sort(bound)
	return bound, err
}

// exclusions reads which GPUs the driver was loaded without.
type exclusions struct {
	procRoot string
	// reading is closed when the last reading has ended; nil if there was none.
	reading chan struct{}
}

// among returns which of these GPUs are excluded; false if the driver does not answer in time, or has not yet answered
// an earlier reading. It is not safe for concurrent use.
func (e *exclusions) among(addresses []string) (excluded []string, answered bool) {
	if e.reading != nil {
		select {
		case <-e.reading:
		default:
			return nil, false
		}
	}
	done, found := make(chan struct{}), make(chan []string, 1)
	e.reading = done
	go func() {
		defer close(done)
		found <- slices.DeleteFunc(slices.Clone(addresses), func(address string) bool {
			return information(e.procRoot, address)["GPU Excluded"] != "Yes"
		})
	}()
	timer := time.NewTimer(procfsTimeout)
	defer timer.Stop()
	select {
	case <-done:
		return <-found, true
	case <-timer.C:
		return nil, false
	}
}

// isGone reports whether the device has left the PCI bus, or does not answer there: then all bits of it are ones.
func (a *Agent) isGone(address string) bool {
	file, err := os.Open(filepath.Join(a.options.NVML.SysRoot, "bus", "pci", "devices", address, "config"))
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	defer file.Close()
	var identity [4]byte
	if _, err := file.Read(identity[:]); err != nil {
		return false
	}
	return bytes.Equal(identity[:], []byte{0xff, 0xff, 0xff, 0xff})
}

// information returns what the driver shows of the GPU in procfs; nothing if it does not show it.
func information(procRoot, address string) map[string]string {
	content, err := os.ReadFile(filepath.Join(procRoot, "driver", "nvidia", "gpus", address, "information"))
	if err != nil {
		return nil
	}
	found := map[string]string{}
	for line := range strings.Lines(string(content)) {
		key, value, _ := strings.Cut(line, ":")
		found[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	return found
}
