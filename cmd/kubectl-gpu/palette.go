package main

import (
	"io"
	"os"

	"golang.org/x/term"
)

// palette colours text for a terminal; one without colours returns the text as it is.
type palette struct {
	on bool
	// width is how many characters a line of the terminal has, 0 for no limit.
	width int
}

// newPalette returns the width of the output, and colours, if it is a terminal. Users turn the colours off: see
// https://no-color.org.
func newPalette(out io.Writer) palette {
	return palette{
		on:    isTerminal(out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
		width: terminalWidth(out),
	}
}

// terminalWidth returns how many characters a line of a terminal has, 0 for another output.
func terminalWidth(out io.Writer) int {
	file, isFile := out.(*os.File)
	if !isFile {
		return 0
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil { // No terminal.
		return 0
	}
	return width
}

func isTerminal(out io.Writer) bool {
	file, isFile := out.(*os.File)
	return isFile && term.IsTerminal(int(file.Fd()))
}

func (p palette) red(text string) string    { return p.paint("31", text) }
func (p palette) green(text string) string  { return p.paint("32", text) }
func (p palette) yellow(text string) string { return p.paint("33", text) }
func (p palette) bold(text string) string   { return p.paint("1", text) }

func (p palette) paint(code, text string) string {
	if !p.on {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
