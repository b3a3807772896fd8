package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxRows is how many nodes are shown at most.
	maxRows = 20
	// around is how many lines of a terminal are not nodes: heading, counts, verdict and free lines.
	around = 8
	// redraw is the interval of the table, and lineEvery that of lines without a terminal.
	redraw    = 200 * time.Millisecond
	lineEvery = time.Second
)

// screen shows frames: on a terminal as a table that is redrawn in place, otherwise as a line when the counts change.
type screen struct {
	out      *os.File
	terminal bool
	// nodes is how many GPU nodes the cluster has.
	nodes int
	// drawn is how many lines the last table has on the terminal.
	drawn int
	// counts are those of the last line, printed at that time.
	counts string
	at     time.Duration
}

func newScreen(out *os.File, nodes int) *screen {
	_, _, terminal := size(out)
	return &screen{out: out, terminal: terminal, nodes: nodes, at: -lineEvery}
}

// size returns the size of a terminal; false if the output is not a terminal.
func size(out *os.File) (width, height int, terminal bool) {
	window, err := unix.IoctlGetWinsize(int(out.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0, false
	}
	if window.Col == 0 || window.Row == 0 {
		return 80, 24, true
	}
	return int(window.Col), int(window.Row), true
}

// show is called periodically, whether or not the frame has changed.
func (s *screen) show(f frame, elapsed time.Duration) {
	if s.terminal {
		width, height, _ := size(s.out)
		rows := max(1, min(maxRows, height-around))
		lines := table(f, style{rows: rows, width: width, colour: os.Getenv("NO_COLOR") == ""})
		clock := fmt.Sprintf("%6.1f s  ", elapsed.Seconds())
		s.replace(append(lines, "", cut(clock+f.counts(s.nodes), width), cut(pad("", len(clock))+f.verdict(), width)))
		return
	}
	if counts := f.counts(s.nodes); counts != s.counts && elapsed-s.at >= lineEvery {
		fmt.Fprintf(s.out, "%6.1f s  %s\n", elapsed.Seconds(), counts)
		s.counts, s.at = counts, elapsed
	}
}

// end shows the last frame permanently.
func (s *screen) end(f frame, elapsed time.Duration) {
	if s.terminal {
		s.show(f, elapsed)
		return
	}
	for _, line := range table(f, style{rows: maxRows}) {
		fmt.Fprintln(s.out, line)
	}
	fmt.Fprintf(s.out, "%6.1f s  %s\n", elapsed.Seconds(), f.counts(s.nodes))
}

// replace overwrites the lines of the last table, in one write to avoid flicker.
func (s *screen) replace(lines []string) {
	var text strings.Builder
	if s.drawn > 0 {
		fmt.Fprintf(&text, "\x1b[%dA", s.drawn)
	}
	for _, line := range lines {
		text.WriteString("\r" + line + "\x1b[K\n")
	}
	text.WriteString("\x1b[J")
	fmt.Fprint(s.out, text.String())
	s.drawn = len(lines)
}
