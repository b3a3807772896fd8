package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// kept has the figures of one size and one setting, from this run and earlier ones.
type kept struct {
	Nodes int
	setting
	// Phases by name.
	Phases map[string]keptPhase
}

// keptPhase has the figures of the last run of a phase.
type keptPhase struct {
	Outcome outcome
	// Machine, Commit and Date (YYYY-MM-DD) of the run.
	Machine, Commit, Date string
	// Load average of the machine in the minute before the program started.
	Load float64
}

// provenance is where figures come from, as it was when this program started.
type provenance struct {
	// load average of the machine.
	load float64
	// commit that the operator was built from.
	commit string
}

func keptFile(dir string, how setting, nodes int) string {
	return filepath.Join(dir, fmt.Sprintf("%d%s.json", nodes, how.key()))
}

// readKept reads the figures of earlier runs; an unreadable file counts as missing.
func readKept(dir string, how setting, nodes int) kept {
	k := kept{}
	if text, err := os.ReadFile(keptFile(dir, how, nodes)); err == nil {
		if json.Unmarshal(text, &k) != nil || k.Nodes != nodes || k.setting != how {
			k = kept{}
		}
	}
	k.Nodes, k.setting = nodes, how
	if k.Phases == nil {
		k.Phases = map[string]keptPhase{}
	}
	return k
}

// keep replaces the figures of a phase.
func (k *kept) keep(dir, phase string, from provenance, out outcome) error {
	k.Phases[phase] = keptPhase{
		Outcome: out, Machine: machine(), Commit: from.commit, Date: time.Now().UTC().Format(time.DateOnly), Load: from.load,
	}
	text, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return fmt.Errorf("encode figures: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create the folder for figures: %w", err)
	}
	if err := os.WriteFile(keptFile(dir, k.setting, k.Nodes), text, 0o644); err != nil {
		return fmt.Errorf("store figures: %w", err)
	}
	return nil
}

// machine describes this machine.
func machine() string {
	model, memory := runtime.GOARCH, ""
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		model = field(string(text), "model name", model)
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		kilobytes := 0
		if _, err := fmt.Sscanf(field(string(text), "MemTotal", ""), "%d kB", &kilobytes); err == nil {
			memory = fmt.Sprintf(", %d GB of memory", kilobytes>>20)
		}
	}
	return fmt.Sprintf("%d cores of %s%s, %s", runtime.NumCPU(), model, memory, runtime.Version())
}

// load returns the load average of the last minute; 0 if it is unknown.
func load() float64 {
	average := 0.0
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		// The first number; 0 if it cannot be parsed.
		_, _ = fmt.Sscan(string(text), &average)
	}
	return average
}

// field returns the first value of a key in a file of lines such as "model name : X".
func field(text, key, otherwise string) string {
	for line := range strings.Lines(text) {
		if before, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(before) == key {
			return strings.TrimSpace(value)
		}
	}
	return otherwise
}

// product lists the paths that the operator is built and installed from.
var product = []string{"api", "assets", "cmd", "config", "internal", "go.mod"}
