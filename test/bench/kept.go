package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// kept is what is known of one size and one way to play pods, from this run and earlier ones.
type kept struct {
	Nodes  int
	Stages stages
	// Phases by name.
	Phases map[string]keptPhase
}

// keptPhase is the last run of a phase.
type keptPhase struct {
	Outcome outcome
	// Machine, Commit and Date (YYYY-MM-DD) of the run.
	Machine, Commit, Date string
	// Load of the machine in the minute before the program began: how many threads wanted a core.
	Load float64
}

func keptFile(dir string, how stages, nodes int) string {
	return filepath.Join(dir, strings.TrimSuffix(fmt.Sprintf("%d-%s", nodes, how), "-")+".json")
}

// readKept reads what earlier runs have left; what cannot be read is as if it were not there.
func readKept(dir string, how stages, nodes int) kept {
	k := kept{}
	if text, err := os.ReadFile(keptFile(dir, how, nodes)); err == nil {
		if json.Unmarshal(text, &k) != nil || k.Nodes != nodes || k.Stages != how {
			k = kept{}
		}
	}
	k.Nodes, k.Stages = nodes, how
	if k.Phases == nil {
		k.Phases = map[string]keptPhase{}
	}
	return k
}

// keep replaces what is known of a phase.
func (k *kept) keep(dir, phase string, load float64, out outcome) error {
	k.Phases[phase] = keptPhase{
		Outcome: out, Machine: machine(), Commit: commit(), Date: time.Now().UTC().Format(time.DateOnly), Load: load,
	}
	text, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return fmt.Errorf("encode figures: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the folder for figures: %w", err)
	}
	if err := os.WriteFile(keptFile(dir, k.Stages, k.Nodes), text, 0o644); err != nil {
		return fmt.Errorf("keep figures: %w", err)
	}
	return nil
}

// machine describes this one, as far as it tells.
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

// load is the average of the last minute; 0 where the kernel does not tell.
func load() float64 {
	average := 0.0
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		// The first number; another text leaves 0.
		_, _ = fmt.Sscan(string(text), &average)
	}
	return average
}

// field is the first value of a file of lines such as "model name : X".
func field(text, key, otherwise string) string {
	for line := range strings.Lines(text) {
		if before, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(before) == key {
			return strings.TrimSpace(value)
		}
	}
	return otherwise
}

// product is what the operator is built and installed from.
var product = []string{"api", "assets", "cmd", "config", "internal", "go.mod"}

// commit is the last one that changed the operator, with -dirty where files were changed since.
func commit() string {
	last, err := exec.Command("git", append([]string{"log", "-1", "--format=%h", "--"}, product...)...).Output()
	if err != nil {
		return "unknown"
	}
	changed, err := exec.Command("git", append([]string{"status", "--porcelain", "--"}, product...)...).Output()
	if err != nil || len(changed) > 0 {
		return strings.TrimSpace(string(last)) + "-dirty"
	}
	return strings.TrimSpace(string(last))
}
