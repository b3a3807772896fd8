package cluster

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of CPU times in /proc: 1/100 s on every platform that Go supports.
const clockTick = 10 * time.Millisecond

// Usage is the resource usage of a process.
type Usage struct {
	// RSS is the resident memory in bytes, and PeakRSS its peak.
	RSS, PeakRSS int64
	// Anonymous is the part of RSS in bytes that is not file-backed: heap and stacks, without the program's text.
	Anonymous int64
	// CPU is user and system time since the start.
	CPU time.Duration
}

// Usage returns the operator's resource usage so far.
func (o *Operator) Usage() (Usage, error) {
	usage, err := UsageOf(o.process.cmd.Process.Pid)
	if err != nil {
		return Usage{}, fmt.Errorf("read usage of the operator: %w", err)
	}
	return usage, nil
}

// UsageOf returns the resource usage of a process so far.
func UsageOf(pid int) (Usage, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Usage{}, err
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, err
	}
	var usage Usage
	lines := bufio.NewScanner(bytes.NewReader(status))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		switch name {
		case "VmRSS":
			usage.RSS, err = parseKilobytes(value)
		case "VmHWM":
			usage.PeakRSS, err = parseKilobytes(value)
		case "RssAnon":
			usage.Anonymous, err = parseKilobytes(value)
		}
		if err != nil {
			return Usage{}, err
		}
	}
	usage.CPU, err = parseCPU(string(stat))
	return usage, err
}

// ChildrenCPU returns the user and system time of the running children of this program, such as a control plane that
// it started.
func ChildrenCPU() (time.Duration, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, fmt.Errorf("find the children of this program: %w", err)
	}
	total, parent := time.Duration(0), strconv.Itoa(os.Getpid())
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			// The process has exited meanwhile.
			continue
		}
		if fields := statFields(string(stat)); len(fields) < 2 || fields[1] != parent {
			continue
		}
		used, err := parseCPU(string(stat))
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", file, err)
		}
		total += used
	}
	return total, nil
}

// statFields returns the fields of /proc/PID/stat from the state on. They follow the last parenthesis, since the
// program's name before it may contain spaces.
func statFields(stat string) []string {
	return strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
}

// parseKilobytes reads a value such as "  123 kB".
func parseKilobytes(value string) (int64, error) {
	kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
	return kilobytes << 10, err
}

// parseCPU sums the fields utime and stime of /proc/PID/stat.
func parseCPU(stat string) (time.Duration, error) {
	const utime, stime = 11, 12
	fields := statFields(stat)
	if len(fields) <= stime {
		return 0, fmt.Errorf("short stat line %q", stat)
	}
	var total time.Duration
	for _, field := range []string{fields[utime], fields[stime]} {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		total += time.Duration(ticks) * clockTick
	}
	return total, nil
}
