package validate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/atomicfile"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/wait"
)

// Defaults of Recheck.
const (
	DefaultRecheckInterval = 5 * time.Minute
	DefaultRecheckConfirm  = 30 * time.Second
)

// jitter is the part of the interval by which it varies, so that nodes which start together do not check together.
const jitter = 0.1

// Recheck checks, while the node runs, that what was validated is still there. It reads files only.
type Recheck struct {
	Markers marker.Dir
	// SysRoot, ProcRoot and DevRoot are where sysfs, procfs and the host's /dev are mounted here.
	SysRoot, ProcRoot, DevRoot string
	// StateFile keeps what the node had when it was validated, for a restart of the container.
	StateFile string
	// Interval is the time between two checks, and Confirm that after which a loss is checked again before it counts.
	Interval, Confirm time.Duration
	// Log gets a line for each loss that is not confirmed yet, and for each change of the pause.
	Log *slog.Logger

	paused string
}

// Run checks until ctx ends, which is no error, or until a loss is confirmed: then it returns the *Loss. A loss that is
// found right at the start was confirmed before. Without a valid marker of the driver, as while the driver restarts, it
// checks nothing.
func (r *Recheck) Run(ctx context.Context) error {
	suspected := true
	for {
		loss, err := r.checkAndNote()
		switch {
		case err != nil:
			r.Log.Warn("the driver and the GPUs cannot be checked", "because", err)
		case loss != nil && suspected:
			return loss
		case loss != nil:
			r.Log.Warn("checking again what may be lost", "loss", loss, "after", r.Confirm)
		}
		suspected = loss != nil
		pause := r.Confirm
		if !suspected {
			pause = time.Duration(float64(r.Interval) * (1 - jitter + 2*jitter*rand.Float64()))
		}
		if !wait.Sleep(ctx, pause) {
			return nil
		}
	}
}

// checkAndNote makes one check. The first one for a boot and driver instance notes what the node has.
func (r *Recheck) checkAndNote() (*Loss, error) {
	instance, validated, pause := r.validated()
	if r.notePause(pause); pause != "" {
		return nil, nil
	}
	now, err := readPresence(kernel{sys: r.SysRoot, proc: r.ProcRoot}, r.DevRoot)
	if err != nil {
		return nil, err
	}
	now.Boot, now.DriverInstance = r.Markers.BootID, instance
	before, err := r.load()
	if err != nil {
		return nil, err
	}
	if before.Boot != now.Boot || before.DriverInstance != now.DriverInstance {
		if reason := driverLoss(validated, now); reason != "" {
			return &Loss{reason: reason}, nil
		}
		return nil, r.save(now)
	}
	return lossOf(before, now), nil
}

// validated returns the driver instance that the marker of the driver is valid for, and the kernel module that it holds
// for. pause is why it is not valid; empty if it is. A module that is not loaded any more does not pause the checks: it
// is a loss.
func (r *Recheck) validated() (instance string, module presence, pause string) {
	instance, err := r.Markers.DriverInstance()
	var found []marker.Assignment
	if err == nil {
		found, err = r.Markers.Read(labels.MarkerDriver)
	}
	if err != nil {
		pause = err.Error()
	}
	module.Version, module.Module = marker.ModuleOf(found)
	return instance, module, pause
}

// notePause logs why the checks are paused when that changes; empty ends the pause.
func (r *Recheck) notePause(pause string) {
	if pause != r.paused {
		if pause == "" {
			r.Log.Info("checks go on: the driver is validated")
		} else {
			r.Log.Info("checks are paused while the driver is not validated", "because", pause)
		}
		r.paused = pause
	}
}

// load returns what the node had when it was validated; the zero presence if that is not noted, or by another release.
func (r *Recheck) load() (presence, error) {
	content, err := os.ReadFile(r.StateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return presence{}, nil
	}
	if err != nil {
		return presence{}, fmt.Errorf("read what the node had when it was validated: %w", err)
	}
	found := presence{}
	if err := json.Unmarshal(content, &found); err != nil {
		r.Log.Warn("what the node had when it was validated cannot be read, and is noted anew", "because", err)
		found = presence{}
	}
	return found, nil
}

func (r *Recheck) save(now presence) error {
	content, err := json.Marshal(now)
	if err != nil {
		return fmt.Errorf("encode what the node has: %w", err)
	}
	return atomicfile.Write(r.StateFile, 0o600, bytes.NewReader(content))
}
