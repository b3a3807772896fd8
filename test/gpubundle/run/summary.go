//go:build linux

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The states of a part.
const (
	statePassed  = "passed"
	stateFailed  = "failed"
	stateSkipped = "skipped"
)

// summary is what a run has found.
type summary struct {
	Begin   time.Time `json:"begin"`
	Seconds float64   `json:"seconds"`
	Passed  bool      `json:"passed"`
	// Played is set if the driver was a stand-in, and so nothing was shown about GPUs.
	Played  bool     `json:"played"`
	Machine machine  `json:"machine"`
	Parts   []result `json:"parts"`
	// Ended is set once all parts have run and the machine was compared with what it was before.
	Ended bool `json:"ended"`
	// Left are the differences of the machine from what it was before, as far as the run may have caused them.
	Left []string `json:"left"`
	// Others are further differences, which do not count: other programs of the machine cause such.
	Others []string `json:"others"`
}

// machine describes the machine. What cannot be found out is empty.
type machine struct {
	Kernel, System, Driver string
	// GPUs are the lines that nvidia-smi -L prints on the machine.
	GPUs []string
}

// result is what a part has found.
type result struct {
	Name  string `json:"name"`
	State string `json:"state"`
	// Reason says why a part was skipped or has failed.
	Reason  string  `json:"reason,omitempty"`
	Seconds float64 `json:"seconds"`
	// Tests are its tests, in the order in which they ended.
	Tests []test `json:"tests"`
}

// test is a test of a part, or a part of a test.
type test struct {
	Name  string `json:"name"`
	State string `json:"state"`
	// Reason says why it has shown nothing here.
	Reason  string  `json:"reason,omitempty"`
	Seconds float64 `json:"seconds"`
}

// passed reports whether no part has failed, and nothing is left.
func (s summary) passed() bool {
	for _, part := range s.Parts {
		if part.State == stateFailed {
			return false
		}
	}
	return len(s.Left) == 0
}

// String is the line about the part in the text.
func (r result) String() string {
	line := fmt.Sprintf("%-8s %-6s %6.1f s", r.State, r.Name, r.Seconds)
	if r.Reason != "" {
		line += "  " + r.Reason
	}
	return line
}

// end is the end of the text, after the lines about parts.
func (s summary) end() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%.0f s, kernel %s, %s, driver %s, %d GPUs\n", s.Seconds, s.Machine.Kernel, s.Machine.System,
		cmp.Or(s.Machine.Driver, "none"), len(s.Machine.GPUs))
	if s.Played {
		text.WriteString("The driver was played: this shows nothing about GPUs.\n")
	}
	switch {
	case !s.Ended:
		text.WriteString("The run has not ended.\n")
	case len(s.Left) == 0:
		text.WriteString("The machine is as before.\n")
	}
	for _, difference := range s.Left {
		fmt.Fprintln(&text, "The machine differs:", difference)
	}
	if len(s.Others) > 0 {
		fmt.Fprintf(&text, "Other programs have changed %d names, which do not count. summary.json lists them.\n",
			len(s.Others))
	}
	return text.String()
}

// write writes the summary as JSON and as text.
func (s summary) write(dir string) error {
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the summary: %w", err)
	}
	var text strings.Builder
	for _, part := range s.Parts {
		fmt.Fprintln(&text, part)
		for _, t := range part.Tests {
			fmt.Fprintf(&text, "         %-7s %6.1f s  %s\n", t.State, t.Seconds, strings.TrimSuffix(t.Name+": "+t.Reason, ": "))
		}
	}
	text.WriteString(s.end())
	err = errors.Join(os.WriteFile(filepath.Join(dir, "summary.json"), append(content, '\n'), 0o644),
		os.WriteFile(filepath.Join(dir, "summary.txt"), []byte(text.String()), 0o644))
	if err != nil {
		return fmt.Errorf("write the summary: %w", err)
	}
	return nil
}

// describeMachine asks the kernel, the system and nvidia-smi, which may take seconds for each GPU, or hang.
func describeMachine(ctx context.Context) machine {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	m := machine{}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	release, _ := os.ReadFile("/etc/os-release")
	for line := range strings.Lines(string(release)) {
		if value, found := strings.CutPrefix(line, "PRETTY_NAME="); found {
			m.System = strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	list, err := exec.CommandContext(ctx, "nvidia-smi", "-L").Output()
	if err == nil {
		m.GPUs = strings.Split(strings.TrimSpace(string(list)), "\n")
	}
	version, err := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").Output()
	if err == nil {
		m.Driver, _, _ = strings.Cut(strings.TrimSpace(string(version)), "\n")
	}
	return m
}

// seconds rounds to tenths.
func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*10) / 10 }
