package main

import (
	"io"
	"os"

	"golang.org/x/term"
)

// palette colours text for a terminal; one without colours returns the text as it is.
type palette struct{ on bool }

// newPalette returns colours if the output is a terminal and the user has not turned them off: see
// https://no-color.org.
func newPalette(out io.Writer) palette {
	return palette{on: isTerminal(out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
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
