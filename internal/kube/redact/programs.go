package redact

import (
	"path"
	"regexp"
	"strings"
)

// programFlag is a flag whose value is or has a password in some programs alone.
type programFlag struct {
	isProgram func(string) bool
	// isFlag and isValue match whole arguments, and text the value in a text, as its only group.
	isFlag, isValue func(string) bool
	text            *regexp.Regexp
}

// passwordValue is a value that is the password, and the others are those that have it behind the user's name.
const (
	passwordValue = `[^\s"',-][^\s"']*`
	afterColon    = `[^\s"':-][^\s"':]*:[^\s"']+`
	afterPercent  = `[^\s"'%-][^\s"'%]*%[^\s"']+`
)

// programFlags are the known ones. Of a short flag the value may follow without a blank.
var programFlags = []programFlag{
	newProgramFlag(`curl|ctr`, `-[a-zA-Z]*?[uU]`, `--(?:proxy-)?user`, afterColon),
	newProgramFlag(`redis-(?:cli|benchmark)`, `-a`, `--pass`, passwordValue),
	newProgramFlag(`ldap[a-z]+`, `-[xLZ]*w`, `--bindPassword`, passwordValue),
	newProgramFlag(`smbclient|smbget|rpcclient`, `-U`, `--user`, afterPercent),
	newProgramFlag(`mosquitto_(?:pub|sub|rr)|ipmitool`, `-P`, `--pw`, passwordValue), //nolint:misspell // Programs.
}

func newProgramFlag(programs, short, long, value string) programFlag {
	const separator = `(?:=|\s+(?:\\\n\s*)?|\\?["'],\s*)\\?["']?`
	whole := func(pattern string) func(string) bool {
		return regexp.MustCompile(`^(?:` + pattern + `)$`).MatchString
	}
	return programFlag{
		isProgram: whole(programs), isFlag: whole(short + `|` + long), isValue: whole(value),
		text: regexp.MustCompile(`(?:^|[\s"'])(?:(?:` + short + `)(?:` + separator + `|["'])?|(?:` + long + `)` + separator +
			`)(` + value + `)`),
	}
}

// isUsed reports whether a command or a line with it names a program of the flag.
func (f programFlag) isUsed(command string) bool {
	words := strings.FieldsFunc(command, func(c rune) bool {
		return !strings.ContainsRune("._-/", c) && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
	})
	for _, word := range words {
		if f.isProgram(path.Base(word)) {
			return true
		}
	}
	return false
}

// removeProgramValues removes the values of programFlags from a text.
func (r *Redactor) removeProgramValues(text string) string {
	for _, f := range programFlags {
		text = r.removeFlagValues("", text, f)
	}
	return text
}

// removeFlagValues removes the values of a flag from a text with what stands before it.
func (r *Redactor) removeFlagValues(before, text string, f programFlag) string {
	var out strings.Builder
	last := 0
	line := command{text: text, begins: lineBegin}
	matches := f.text.FindAllStringSubmatchIndex(text, -1)
	usedBefore, used := len(matches) > 0 && f.isUsed(before), false
	for _, at := range matches {
		value := text[at[2]:at[3]]
		more, same := line.advance(at[0])
		used = same && used || f.isUsed(more)
		if harmless.MatchString(value) || !usedBefore && !used {
			continue
		}
		out.WriteString(text[last:at[2]])
		out.WriteString(r.remove("value of a credential's flag", value))
		last = at[3]
	}
	out.WriteString(text[last:])
	return out.String()
}

// command is what stands before one flag after the other in a text. A text may have one long line with many flags, so
// no part of it is searched twice.
type command struct {
	text string
	// begins returns where the last command of a part of the text begins; false if it continues the one before the part.
	begins func(text string, from, to int) (int, bool)
	// begin is where the current command begins, and seen how far the text was searched.
	begin, seen int
}

// advance moves on to a later position. It returns the new part of the command there, and whether that continues the
// one of the position before.
func (c *command) advance(position int) (more string, same bool) {
	from := c.seen
	begin, begins := c.begins(c.text, from, position)
	if begins {
		c.begin, from = begin, begin
	}
	c.seen = position
	return c.text[from:position], !begins
}

// lineBegin returns where the last line of a part of a text begins, with those that it continues.
func lineBegin(text string, from, to int) (int, bool) {
	for {
		newline := from + strings.LastIndexByte(text[from:to], '\n')
		if newline < from {
			return 0, false
		}
		if newline == 0 || text[newline-1] != '\\' {
			return newline + 1, true
		}
		to = newline
	}
}

// isProgramFlag reports whether an argument after a flag is or has a password, by the command before the flag.
func isProgramFlag(command, flag, value string) bool {
	for _, f := range programFlags {
		if f.isFlag(flag) && f.isValue(value) && f.isUsed(command) {
			return true
		}
	}
	return false
}

// removeAttached removes a password from an argument that has the flag, too, by the command before it.
func (r *Redactor) removeAttached(command, text string) string {
	if strings.HasPrefix(text, "-") {
		for _, f := range programFlags {
			text = r.removeFlagValues(command, text, f)
		}
	}
	return text
}

// blockHeader is a line of YAML whose value is the block of lines below it.
var blockHeader = regexp.MustCompile(`(?im)^([ \t]*(?:- +)*)["']?(?:` + credentialName + `|` + keyName +
	`)["']?[ \t]*:[ \t]*[|>][-+0-9]*[ \t\r]*\n`)

// removeBlocks removes the lines of such blocks: those that are indented more than the key, and empty ones between
// them.
func (r *Redactor) removeBlocks(text string) string {
	var out strings.Builder
	for {
		at := blockHeader.FindStringSubmatchIndex(text)
		if at == nil {
			out.WriteString(text)
			return out.String()
		}
		end := blockEnd(text, at[1], at[3]-at[2])
		out.WriteString(text[:at[1]])
		if block := strings.TrimRight(text[at[1]:end], " \t\r\n"); block != "" {
			rest := strings.TrimLeft(block, " \t\r\n")
			out.WriteString(block[:len(block)-len(rest)])
			out.WriteString(r.remove("value of a credential's name", rest))
			end = at[1] + len(block)
		}
		text = text[end:]
	}
}

// blockEnd returns where the lines from begin end that are empty or indented by more than a number of columns.
func blockEnd(text string, begin, columns int) int {
	for end := begin; ; {
		line, _, more := strings.Cut(text[end:], "\n")
		indented := strings.TrimLeft(line, " \t")
		if strings.TrimSpace(line) != "" && len(line)-len(indented) <= columns {
			return end
		}
		if !more {
			return len(text)
		}
		end += len(line) + 1
	}
}
