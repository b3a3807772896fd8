package cluster

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of CPU times in /proc, 1/100 s on every platform that Go supports.
const clockTick = 10 * time.Millisecond

// Usage is what a process has used.
type Usage struct {
	// RSS is the resident memory in bytes, and PeakRSS the most that it has ever been.
	RSS, PeakRSS int64
	// Anonymous is the part of RSS in bytes that no file backs: heap and stacks, not the program's own text.
	Anonymous int64
	// CPU is user and system time since the start.
	CPU time.Duration
}

// Usage reads what the operator has used so far.
func (o *Operator) Usage() (Usage, error) {
	usage, err := readUsage(o.process.cmd.Process.Pid)
	if err != nil {
		return Usage{}, fmt.Errorf("read usage of the operator: %w", err)
	}
	return usage, nil
}

func readUsage(pid int) (Usage, error) {
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

// parseKilobytes reads a value such as "  123 kB".
func parseKilobytes(value string) (int64, error) {
	kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
	return kilobytes << 10, err
}

// parseCPU sums the fields utime and stime of /proc/PID/stat. They are counted from the last
// parenthesis, since the program's name in front of it may contain spaces.
func parseCPU(stat string) (time.Duration, error) {
	const utime, stime = 11, 12
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
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
