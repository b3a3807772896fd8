package readiness

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

// maxLastLine, in bytes, limits what is shown of a termination message. It has room for a reason of gpu-node with its
// remedy.
const maxLastLine = 300

// maxBegin, in bytes, is how much of the beginning of a longer line is shown.
const maxBegin = 100

// maxSearched, in bytes, limits what is searched of a line, so that its cost has a bound: runtimes keep no longer
// message. A secret that is cut off there is redacted, too.
const maxSearched = 4096

const redacted = "[redacted]"

// secretName matches a name whose value must not be shown.
const secretName = `[\w.-]*(?:password|passwd|secret|token|credential|(?:api|access|private)[_-]?key)[\w.-]*`

var (
	// terminalCodes are colours, cursor movements and titles.
	terminalCodes = regexp.MustCompile(`\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])`)
	// logHeader is the time at the start of a line, in the forms of klog, logrus and ISO 8601. It differs after each
	// restart.
	logHeader = regexp.MustCompile(`^(?:[IWEF]\d{4} [\d:.]+ +\d+ \S+\] ` +
		`|(?:time=)?"?\d{4}[-/]\d\d[-/]\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?"?\s+)`)
	// klogError is the start of a line that klog writes about an error.
	klogError = regexp.MustCompile(`^[EF]\d{4} `)
	// assignmentLine is a line of a dump of the environment.
	assignmentLine = regexp.MustCompile(`^(?:export |declare -x )?[A-Z_][A-Z0-9_]*=`)
	// secrets are what is redacted, each with its replacement.
	secrets = []struct {
		pattern *regexp.Regexp
		by      string
	}{
		{regexp.MustCompile(`(?i)(` + secretName + `=)(?:"[^"]*"|'[^']*'|[^\s,;&]+)`), "${1}" + redacted},
		{regexp.MustCompile(`(?i)("` + secretName + `"\s*:\s*)(?:"[^"]*"|[^\s,}]+)`), "${1}" + redacted},
		{regexp.MustCompile(`(?i)\b(bearer|basic) [\w.~+/=-]{16,}`), "${1} " + redacted},
		{regexp.MustCompile(`(://)[^/\s:@]*:[^/\s@]+@`), "${1}" + redacted + "@"},
		// Kubelets cut the end of long messages, also within a password. A number there is a port.
		{regexp.MustCompile(`(://[^/\s:@]*:)[^/\s@]*[^/\s@\d][^/\s@]*$`), "${1}" + redacted},
		{regexp.MustCompile(`\beyJ[\w-]+\.[\w-]+\.[\w-]*`), redacted},
	}
)

var (
	// errorWords are in lines that name an error: programs that clean up log more lines after it.
	errorWords = []string{
		"error", "fail", "fatal", "panic", "exception", "cannot", "could not", "unable", "denied", "no such",
	}
	// secretWords are in every line that one of secrets matches. Looking for them costs a fraction.
	secretWords = []string{"passw", "secret", "token", "credential", "key", "bearer", "basic", "://", "eyj"}
)

// LastLine returns the line of a termination message that states why the container ended: the last one that names an
// error, or the last one. The message is what the program wrote for this purpose, or else the end of its log. Whoever
// may read nodes and policies sees the line, not only readers of logs: values of secrets are redacted, and lines of a
// dump of the environment are skipped.
func LastLine(message string) string {
	last, isError := "", false
	for line := range strings.FieldsFuncSeq(message, isLineBreak) {
		if strings.HasPrefix(line, "goroutine ") {
			break // The stack of a panic, whose reason is above.
		}
		line = text.Truncate(strings.TrimSpace(Printable(line)), maxSearched)
		named := klogError.MatchString(line) || hasAny(line, errorWords)
		line = strings.TrimSpace(logHeader.ReplaceAllString(line, ""))
		if line == "" || assignmentLine.MatchString(line) || isError && !named {
			continue
		}
		last, isError = line, named
	}
	return shorten(redact(last))
}

// shorten leaves out the middle of a line that is longer than maxLastLine: programs put context before a cause.
func shorten(line string) string {
	if len(line) <= maxLastLine {
		return line
	}
	const gap = " ... "
	begin, end := strings.TrimSpace(text.Clip(line, maxBegin)), line[len(line)-maxLastLine+maxBegin+len(gap):]
	_, after, found := strings.Cut(end, " ")
	if !found {
		after = strings.TrimLeftFunc(strings.ToValidUTF8(end, ""), unicode.IsSpace)
	}
	return begin + gap + after
}

// redact replaces the values of secrets in a line.
func redact(line string) string {
	if !hasAny(line, secretWords) {
		return line
	}
	for _, secret := range secrets {
		line = secret.pattern.ReplaceAllString(line, secret.by)
	}
	return line
}

// hasAny reports whether the line has one of the words, in upper or lower case.
func hasAny(line string, words []string) bool {
	line = strings.ToLower(line)
	return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(line, word) })
}

// isLineBreak includes the carriage return of progress bars.
func isLineBreak(r rune) bool { return r == '\n' || r == '\r' }

// Printable returns a line without the codes of a terminal and the characters that are not shown or change how others
// are shown. Bytes that are no text become question marks.
func Printable(line string) string {
	if strings.ContainsRune(line, '\x1b') {
		line = terminalCodes.ReplaceAllString(line, "")
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(line, "?"))
}
