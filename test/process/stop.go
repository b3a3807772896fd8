package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The state of each thread is looked at every stopPause, stopLooks times at most.
const (
	stopPause = 10 * time.Millisecond
	stopLooks = 1000
)

// AwaitStop waits until all threads of a process have stopped after SIGSTOP, for 10 s at most: on a busy machine some
// still run for a moment, so that a server answers. It does not wait where the system has no /proc.
func AwaitStop(pid int) {
	for range stopLooks {
		if isStopped(pid) {
			return
		}
		time.Sleep(stopPause)
	}
}

// isStopped reports whether no thread of the process runs or sleeps.
func isStopped(pid int) bool {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // The pattern is valid.
	for _, file := range files {
		stat, err := os.ReadFile(file)
		// The state follows the name of the program, which is in parentheses and may contain some.
		i := strings.LastIndex(string(stat), ") ")
		if err == nil && i >= 0 && !strings.ContainsRune("TtZX", rune(stat[i+len(") ")])) {
			return false
		}
	}
	return true
}
