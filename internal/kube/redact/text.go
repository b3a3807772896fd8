package redact

import (
	"cmp"
	"encoding/base64"
	"iter"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Mark replaces what is removed.
const Mark = "[redacted]"

// minValue is the length in bytes from which on a credential is searched in all texts. Shorter ones, such as a password
// "on", would take away parts of words, and so would words that are shorter than minWord.
const (
	minValue = 6
	minWord  = 12
)

// isWord reports whether a value is a word, such as the name of a namespace.
var isWord = regexp.MustCompile(`^[a-z.-]+$`).MatchString

// credentialName is how names of credentials look, of variables, keys and flags.
const credentialName = `(?:[a-z0-9_.-]*(?:passw(?:or)?d|passphrase|pwd|secret|token|credential|creds|` +
	`api[-_.]?key|access[-_.]?key|` +
	`private[-_.]?key|signing[-_.]?key|encryption[-_.]?key|license[-_.]?key|account[-_.]?key|key[-_.]data|cookie|` +
	`auth)[a-z0-9_.-]*|(?:[a-z0-9_.-]*[_.-]|pg|db|root|bind)?(?:pass|pw)(?:[_.-][a-z0-9_.-]*)?|tls\.key)`

// keyName is how other names of keys look, such as NGC_CLI_KEY, which may also be those of labels.
const keyName = `[a-z0-9_.-]*[a-z0-9][_-]key`

// assigned is what follows a name up to its value, which is one of the groups.
const assigned = `\\?["']?\s*[:=]\s*(?:\\"(.*?)\\"|"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s"'\\]+))`

// valueKey is how an object names the value of the key that has the object, as in {"password":{"value":"a"}}.
const valueKey = `(?:value|data|plain(?:text)?|content|raw|literal|string|text)`

// doubtful and doubtfulKey are what may as well be something else than a credential: it is removed where it is, and not
// wherever else it is found.
const (
	doubtful    = "value of a flag that may be a password"
	doubtfulKey = "value of a name that may be a credential's"
)

// form is a form of credentials in a text. group is the part of a match that is the credential.
type form struct {
	what  string
	match *regexp.Regexp
	group int
}

// forms are the known ones. Prefixes of tokens are those that their issuers document for secret scanning.
var forms = []form{
	{"private key", regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?` +
		`(?:-----END [A-Z ]*PRIVATE KEY-----|\z)`), 0},
	{"private key", regexp.MustCompile(`\bLS0tLS1CRUdJTi[A-Za-z0-9+/]{8,}=*`), 0}, // The same in base64.
	{"credentials in a URL", regexp.MustCompile(`(?i)\b[a-z][a-z0-9+.-]*://([^\s/"'<>]+)@`), 1},
	{"JSON Web Token", regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?`), 0},
	{"token", regexp.MustCompile(`\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|` +
		`nvapi-[A-Za-z0-9_-]{16,}|xox[abeprs]-[A-Za-z0-9-]{10,}|hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|` +
		`AIza[A-Za-z0-9_-]{30,}|(?:AKIA|ASIA)[A-Z0-9]{16}|npm_[A-Za-z0-9]{20,}|dckr_pat_[A-Za-z0-9_-]{16,})`), 0},
	{"authorization", regexp.MustCompile(`(?i)\bauthorization["']?\s*[:=]\s*["']?` +
		`((?:(?:bearer|basic|token|negotiate)\s+)?` +
		`[^\s"',;]+)`), 1},
	{"authorization", regexp.MustCompile(`(?i)\b(?:bearer|basic)\s+([A-Za-z0-9+/_.~-]{12,}=*)`), 1},
	{"webhook", regexp.MustCompile(`\b(?:hooks\.slack\.com/(?:services|workflows|triggers)|` +
		`discord(?:app)?\.com/api/webhooks|webhook\.office\.com/webhookb2)/([^\s"'<>]+)`), 1},
	{"value of a credential's name", regexp.MustCompile(`(?i)(?:[?&]|\\u0026)(?:` + credentialName +
		`|[a-z0-9-]*sig(?:nature)?)=([^\s"'&]+)`), 1},
	{"value of a credential's name", regexp.MustCompile(`(?i)\b` + credentialName +
		`\\?["']?\s*:\s*\{[^{}]*?\b` + valueKey + assigned), 1},
	{"value of a credential's name", regexp.MustCompile(`(?i)\b` + credentialName + // A block of YAML in JSON.
		`:\s*[|>][-+0-9]*(?:\\n)+\s*([^"\\]+)`), 1},
	{"value of a credential's name", regexp.MustCompile(`(?i)\b` + credentialName + assigned), 1},
	{doubtfulKey, regexp.MustCompile(`(?i)\b` + keyName + assigned), 1},
	{"value of a variable", variableValue(credentialName), 1},
	{doubtfulKey, variableValue(keyName), 1},
	{"password from standard input", regexp.MustCompile(`\b(?:echo|printf)\s+([^\n|;&]+?)\s*\|[^\n|;&]*` +
		`(?:--password-stdin|\bpasswd\s+--stdin|\bsudo\s+-S)\b`), 1},
	{"password from standard input", regexp.MustCompile(`--password-stdin\b[^\n|;&]*?<<<\s*["']?([^\s"']+)`), 1},
	{"value of a credential's flag", regexp.MustCompile(`(?i)(?:^|\s)--?` + credentialName + `\s+([^\s"'-][^\s"']*)`), 1},
	{doubtful, regexp.MustCompile(`(?:^|[\s"'])-p(?:\s+|=)["']?([^\s"'-][^\s"']*)`), 1},
	{"value of a credential's flag", regexp.MustCompile(`\b(?:mysql|mysqldump|mysqladmin|mariadb|sshpass)\s` +
		`[^\n|;&]*?-p([^\s"'=-][^\s"']*)`), 1},
	{"password in base64", regexp.MustCompile(`\b([A-Za-z0-9+/]{6,}={0,2})["']?\s*\|\s*base64\s+(?:-d|-D|--decode)`), 1},
	{"password in base64", regexp.MustCompile(`\bbase64\s+(?:-d|-D|--decode)\s*<<<\s*["']?([A-Za-z0-9+/]{6,}={0,2})`), 1},
}

// variableValue is the form of an element of an env list in JSON.
func variableValue(name string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)\\?["']name\\?["']\s*:\s*\\?["']` + name +
		`\\?["']\s*,\s*\\?["']value\\?["']\s*:\s*\\?["']([^"'\\]+)`)
}

// isCredentialName reports whether a variable, a key or a flag names a credential, and isKeyName whether it may.
var (
	isCredentialName = regexp.MustCompile(`(?i)^` + credentialName + `$`).MatchString
	isKeyName        = regexp.MustCompile(`(?i)^` + keyName + `$`).MatchString
	isValueKey       = regexp.MustCompile(`(?i)^` + valueKey + `$`).MatchString
)

// harmless are values that a name of a credential may have, and that reveal nothing. A path begins with a word in lower
// case, which a credential in base64 that begins with a slash does not.
var harmless = regexp.MustCompile(`(?i)^(?:true|false|null|nil|none|yes|no|on|off|enabled|disabled|[0-9]{1,5}|` +
	`tcp|udp|icmp|sctp|all|` + // -p of programs for networks.
	`[{}\[\]|>]+[-+0-9]?|` + // What begins an object, a list or a block.
	`\[redacted\].*|(?-i:/(?:[a-z][a-z0-9_.-]*(?:/[A-Za-z0-9_.-]*)*)?)|\$(?:[({].*)?)$`)

// Redactor removes credentials, and remembers them.
type Redactor struct {
	found map[string]bool
	// Count is how many values have been removed, by what they were.
	Count map[string]int
}

// New returns a redactor that knows no credential.
func New() *Redactor {
	return &Redactor{found: map[string]bool{}, Count: map[string]int{}}
}

// otherPrograms are those whose flag -p is no password. Ports of other programs, such as docker, ssh and nc, are known
// by their form; docker login has a password there, and docker exec another program.
var otherPrograms = []string{
	"cp", "install", "ip6tables", "iptables", "kill", "mkdir", "patch", "pgrep", "ps", "rmdir", "tar", "top", "unzip",
}

// starters stand before a program.
var starters = []string{"bash", "do", "else", "exec", "sh", "sudo", "then"}

// ports is how programs that run containers name ports after -p.
var ports = regexp.MustCompile(`^(?:[0-9.]+:)?[0-9]+:[0-9]+(?:/[a-z]+)?$`).MatchString

// commandBegin returns where the last command of a part of a text begins.
func commandBegin(text string, from, to int) (int, bool) {
	separator := strings.LastIndexAny(text[from:to], "\n;|&(`\"'")
	return from + separator + 1, separator >= 0
}

// isOther reports whether -p before a value is no flag for a password, by the program of the command.
func (c *command) isOther(value string) bool {
	return ports(value) || isOtherCommand(strings.FieldsSeq(c.text[c.begin:c.seen]))
}

// isOtherCommand reports whether the program of a command is one whose flag -p is no password.
func isOtherCommand(words iter.Seq[string]) bool {
	for word := range words {
		if word = path.Base(word); !slices.Contains(starters, word) && !strings.HasPrefix(word, "-") && word != "+" {
			return slices.Contains(otherPrograms, word)
		}
	}
	return false
}

// remove returns the mark for a value, which is a credential, or may be one if what it was is doubtful.
func (r *Redactor) remove(what, value string) string {
	r.Count[what]++
	if what != doubtful && what != doubtfulKey {
		r.remember(value)
	}
	return Mark
}

// remember lets Finish remove a value wherever it is, also in base64, with its lines and the password of a user and a
// password.
func (r *Redactor) remember(value string) {
	parts := append(strings.Split(value, "\n"), value)
	if _, password, has := strings.Cut(value, ":"); has {
		parts = append(parts, password)
	}
	if fields := strings.Fields(value); len(fields) > 1 {
		parts = append(parts, fields[len(fields)-1])
	}
	for _, part := range parts {
		part = strings.Trim(part, "\"' \t\r")
		if len(part) < minValue || len(part) < minWord && isWord(part) {
			continue
		}
		if !harmless.MatchString(part) && !strings.HasPrefix(part, "-----") {
			r.found[part] = true
			r.found[strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(part)), "=")] = true
			r.found[strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(part+"\n")), "=")] = true
		}
	}
}

// RedactText returns a text without what has the form of a credential.
func (r *Redactor) RedactText(text string) string {
	return r.removeEncoded(r.redactPlain(text))
}

// redactPlain removes what has the form of a credential, but for base64.
func (r *Redactor) redactPlain(text string) string {
	text = r.removeProgramValues(r.removeBlocks(text))
	for _, f := range forms {
		text = r.replace(text, f)
	}
	return text
}

// inBase64 is what may be a text in base64: long enough that it is one by chance only rarely.
var inBase64 = regexp.MustCompile(`[A-Za-z0-9+/]{12,}={0,2}`)

// userAndPassword is how basic authentication encodes them.
var userAndPassword = regexp.MustCompile(`^[A-Za-z0-9_.@$-]+:\S+$`)

// removeEncoded removes what is base64 of a text with a credential, or of a user and a password.
func (r *Redactor) removeEncoded(text string) string {
	return inBase64.ReplaceAllStringFunc(text, func(match string) string {
		decoded, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(match, "="))
		plain := string(decoded)
		if err != nil || !isPrintable(plain) {
			return match
		}
		within := New()
		_ = within.redactPlain(plain)
		if len(within.Count) == 0 && !userAndPassword.MatchString(string(decoded)) {
			return match
		}
		for value := range within.found {
			r.found[value] = true
		}
		return r.remove("password in base64", match)
	})
}

// isPrintable reports whether a text has characters of ASCII alone that people write.
func isPrintable(text string) bool {
	return text != "" && strings.IndexFunc(text, func(c rune) bool {
		return c != '\n' && c != '\t' && c != '\r' && (c < ' ' || c > '~')
	}) < 0
}

// replace removes the matches of one form.
func (r *Redactor) replace(text string, f form) string {
	var out strings.Builder
	last := 0
	before := command{text: text, begins: commandBegin}
	for _, at := range f.match.FindAllStringSubmatchIndex(text, -1) {
		begin, end := at[2*f.group], at[2*f.group+1]
		// The alternatives of a form are groups of their own.
		for group := f.group + 1; begin < 0 && 2*group+1 < len(at); group++ {
			begin, end = at[2*group], at[2*group+1]
		}
		if begin < last || harmless.MatchString(text[begin:end]) {
			continue
		}
		if f.what == doubtful {
			before.advance(at[0])
			if before.isOther(text[begin:end]) {
				continue
			}
		}
		out.WriteString(text[last:begin])
		out.WriteString(r.remove(f.what, text[begin:end]))
		last = end
	}
	if last == 0 {
		return text
	}
	out.WriteString(text[last:])
	return out.String()
}

// Finish removes from a text what was found anywhere. It is called once all texts were read, and must not change what
// the caller has written itself, such as the names of files.
func (r *Redactor) Finish(text string) string {
	var pairs []string
	for value := range r.found {
		if strings.Contains(text, value) {
			pairs = append(pairs, value)
		}
	}
	// The longest first, so that no rest of it stays.
	slices.SortFunc(pairs, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	for _, value := range pairs {
		if n := strings.Count(text, value); n > 0 {
			r.Count["repetition of a credential"] += n
			text = strings.ReplaceAll(text, value, Mark)
		}
	}
	return text
}
