package cleanup

import (
	"fmt"
	"slices"
	"strings"
)

// Report is the result of a run.
type Report struct {
	// Removed are paths on the host, in the order of their removal.
	Removed []string
	// Reloaded are the sockets of the container runtimes that got SIGHUP to reload their configuration.
	Reloaded []string
	// Left is what stays, in the order of the list.
	Left []Left
	// Modules are the driver's kernel modules that are loaded.
	Modules []Module
}

// Left is something of the stack that stays on the host.
type Left struct {
	// Path on the host.
	Path string
	// By is who made it.
	By string
	// Why it stays, and what to do.
	Why string
	// Busy: it is in use, so that a later run may remove it.
	Busy bool
}

func (l Left) String() string { return fmt.Sprintf("%s, made by %s: %s", l.Path, l.By, l.Why) }

// Busy returns what is in use.
func (r Report) Busy() []Left {
	return slices.DeleteFunc(slices.Clone(r.Left), func(l Left) bool { return !l.Busy })
}

// Text returns one line for each reason that something stays, and one for the modules, within a number of bytes; empty
// if nothing stays.
func (r Report) Text(limit int) string {
	lines := linesOf(r.Left)
	if len(r.Modules) > 0 {
		lines = append(lines, modulesLine(r.Modules))
	}
	text := strings.Join(lines, "\n")
	for shown := len(lines) - 1; len(text) > limit && shown >= 0; shown-- {
		more := fmt.Sprintf("and %d more, see the log", len(lines)-shown)
		text = strings.Join(append(slices.Clone(lines[:shown]), more), "\n")
	}
	return text
}

// linesOf returns a line for each reason, with the first path that stays for it and the number of the others.
func linesOf(all []Left) []string {
	var lines []string
	for len(all) > 0 {
		first := all[0]
		count := len(all)
		all = slices.DeleteFunc(slices.Clone(all), func(l Left) bool { return l.By == first.By && l.Why == first.Why })
		if more := count - len(all) - 1; more > 0 {
			first.Path = fmt.Sprintf("%s and %d more", first.Path, more)
		}
		lines = append(lines, first.String())
	}
	return lines
}
