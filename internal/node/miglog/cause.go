package miglog

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/clusterpolicy/gpu-operator/internal/kube/redact"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

// maxCause is the length of a cause in bytes.
const maxCause = 300

// begin is in the line with which the MIG manager begins each change.
const begin = "Updating to MIG config: "

// rank is how much a message says about the cause. Of messages with the same rank, the last one counts.
type rank int

const (
	nothing rank = iota
	// outcome: the change, or a part of it, has failed.
	outcome
	// step: what has failed.
	step
	// plain: an error of a program without levels, such as kubectl.
	plain
	// cause: an error of the MIG manager or of nvidia-mig-parted.
	cause
)

var (
	// leveled is a line of an error in the format of logrus, as both programs write it without a terminal.
	leveled = regexp.MustCompile(`^time="[^"]*" level=(?:error|fatal) msg=("(?:[^"\\]|\\.)*"|[^\s"]\S*)`)
	// plainError and plainStep are lines of errors without a level.
	plainError = regexp.MustCompile(`^(?i:error|fatal)\b`)
	plainStep  = regexp.MustCompile(`^(?:Unable to|Failed to|MIG mode change did not) `)
	// expected are errors that each change has: the checks whether it is needed, and the end of a program whose own
	// errors are in the log.
	expected = regexp.MustCompile(`^(?:Assertion failure: selected configuration not currently applied|` +
		`Error: exit status [0-9]+)$`)
	// isOutcome and isStep are errors that only refer to others.
	isOutcome = regexp.MustCompile(`^Error: .*exit status [0-9]+$|erroneous devices may persist$|` +
		`^Unable to validate the selected MIG configuration$`)
	isStep = regexp.MustCompile(`(?:exit status [0-9]+|all orderings failed)$`)
)

// Cause returns the words with which the log says why the last change has failed; empty if it does not say. They are
// one line without credentials and double quotes, and the same each time that the log of this change is read.
func Cause(log string) string {
	var found string
	best := nothing
	for line := range strings.SplitSeq(lastChange(log), "\n") {
		message, says := read(line)
		if says != nothing && says >= best {
			found, best = message, says
		}
	}
	if found == "" {
		return ""
	}
	credentials := redact.New()
	_ = credentials.RedactText(log) // What a name elsewhere shows to be a credential may stand alone in the words.
	// A part of the log would keep all of it in memory.
	return strings.Clone(text.Truncate(credentials.Finish(credentials.RedactText(found)), maxCause))
}

// lastChange returns the part of the log since the last change began, or all if that is not in it.
func lastChange(log string) string { return log[max(0, strings.LastIndex(log, begin)):] }

// read returns the message of a line in one line, and how much it says.
func read(line string) (message string, says rank) {
	message, says = oneLine(line), plain
	if found := leveled.FindStringSubmatch(line); found != nil {
		message, says = oneLine(unquote(found[1])), cause
	} else if plainStep.MatchString(message) {
		says = step
	} else if !plainError.MatchString(message) {
		return "", nothing
	}
	switch {
	case message == "" || expected.MatchString(message):
		return "", nothing
	case isOutcome.MatchString(message):
		says = outcome
	case isStep.MatchString(message):
		says = step
	}
	return message, says
}

// unquote returns the text of a message, which logrus quotes if it has more than one word.
func unquote(message string) string {
	if unquoted, err := strconv.Unquote(message); err == nil {
		return unquoted
	}
	return message
}

// oneLine returns a text with single blanks, and without what cannot be shown in quotes.
func oneLine(message string) string {
	shown := strings.Map(func(r rune) rune {
		switch {
		case r == '"':
			return '\''
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, message)
	return strings.Join(strings.Fields(shown), " ")
}
