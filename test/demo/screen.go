package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxRows is how many nodes a person can look at.
	maxRows = 20
	// around is how many lines of a terminal are not nodes: heading, counts, verdict and what is
	// left free.
	around = 8
	// redraw is the pace of the table, and lineEvery that of lines where there is no terminal.
	redraw    = 200 * time.Millisecond
	lineEvery = time.Second
)

// screen shows frames: on a terminal a table in its place, else a line when the counts change.
type screen struct {
	out      *os.File
	terminal bool
	// drawn is how many lines of the last table stand on the terminal.
	drawn int
	// last line that was printed, and when.
	last   string
	lastAt time.Time
}

func newScreen(out *os.File) *screen {
	_, _, terminal := size(out)
	return &screen{out: out, terminal: terminal}
}

// size returns the size of a terminal, or false for anything else.
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

// show is called for each frame, and again as time goes by.
func (s *screen) show(f frame, elapsed time.Duration) {
	clock := fmt.Sprintf("%6.1fs", elapsed.Seconds())
	if s.terminal {
		width, height, _ := size(s.out)
		st := style{rows: max(1, min(maxRows, height-around)), width: width, colour: os.Getenv("NO_COLOR") == ""}
		lines := append(table(f, st), "", cut(clock+"  "+f.counts(), width), cut("         "+f.verdict(), width))
		s.replace(lines)
		return
	}
	if counts := f.counts(); counts != s.last && elapsed-s.lastElapsed() >= lineEvery {
		fmt.Fprintln(s.out, clock+"  "+counts)
		s.last, s.lastAt = counts, time.Now()
	}
}
