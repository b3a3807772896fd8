package osrelease

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Fields of os-release that identify the operating system.
const (
	ID        = "ID"
	VersionID = "VERSION_ID"
	// OSTreeVersion is the release of Red Hat CoreOS.
	OSTreeVersion = "OSTREE_VERSION"
)

// maxSize, in bytes, limits what is read: the file has a few hundred.
const maxSize = 64 << 10

var (
	keyPattern     = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	versionPattern = regexp.MustCompile(`^([0-9]+)(?:\.([0-9]+))?(?:\..*)?$`)
)

// Read returns the fields of the os-release of the system whose root file system is mounted at root: of
// /etc/os-release or, where that is missing, of /usr/lib/os-release. Together with an error it returns the fields
// that can be read.
func Read(root string) (map[string]string, error) {
	for _, name := range []string{"etc/os-release", "usr/lib/os-release"} {
		path := filepath.Join(root, name)
		file, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("the operating system is unknown: %w", err)
		}
		defer file.Close()
		content, err := io.ReadAll(io.LimitReader(file, maxSize))
		if err != nil {
			return nil, fmt.Errorf("the operating system is unknown: %w", err)
		}
		fields, err := Parse(string(content))
		if err != nil {
			return fields, fmt.Errorf("%s does not have the format of os-release(5): %w", path, err)
		}
		return fields, nil
	}
	return nil, fmt.Errorf(
		"the operating system is unknown: there is neither etc/os-release nor usr/lib/os-release in %s; mount the "+
			"host's /usr/lib, and check that the host has the file, see os-release(5)", root)
}

// Parse reads the content of an os-release: lines KEY=value, KEY="value" or KEY='value' with the escapes of a
// shell, empty lines and lines that start with "#". Nothing is ever evaluated. The last line of a key counts, as
// in a shell. Other lines are left out, and the error names the first of them.
func Parse(content string) (map[string]string, error) {
	fields := map[string]string{}
	var problem error
	number := 0
	for line := range strings.SplitSeq(content, "\n") {
		number++
		line = strings.Trim(line, " \t\r")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, raw, _ := strings.Cut(line, "=")
		value, ok := unquote(raw)
		if !ok || !keyPattern.MatchString(key) || !strings.Contains(line, "=") {
			if problem == nil {
				problem = fmt.Errorf("line %d is %q", number, line)
			}
			continue
		}
		fields[key] = value
	}
	return fields, problem
}

// unquote returns the literal value, and whether raw is one.
func unquote(raw string) (string, bool) {
	if strings.ContainsRune(raw, 0) {
		return "", false
	}
	if inner, ok := strings.CutPrefix(raw, "'"); ok {
		inner, ok = strings.CutSuffix(inner, "'")
		return inner, ok && !strings.Contains(inner, "'")
	}
	if inner, ok := strings.CutPrefix(raw, `"`); ok {
		return unescape(inner, true)
	}
	return unescape(raw, false)
}

// unescape removes the backslashes. A quoted text ends with its only bare quotation mark; in one that is not
// quoted a bare mark, a space or what a shell would run or expand is an error.
func unescape(raw string, quoted bool) (string, bool) {
	special := " \t'\"`$;&|<>()"
	if quoted {
		special = "`$"
	}
	var value strings.Builder
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		switch {
		case c == '\\' && i+1 == len(raw), strings.IndexByte(special, c) >= 0:
			return "", false
		case c == '\\':
			i++
			// In quotes, a backslash before any other character is literal.
			if quoted && strings.IndexByte("\"$`\\", raw[i]) < 0 {
				value.WriteByte(c)
			}
			value.WriteByte(raw[i])
		case c == '"':
			return value.String(), i+1 == len(raw)
		default:
			value.WriteByte(c)
		}
	}
	return value.String(), !quoted
}

// SplitVersion returns the first two numbers of a version such as 24.04 or 9.6.1: 24 and 04. The second is empty
// if the version has only one, and both are if it does not start with a number.
func SplitVersion(version string) (major, minor string) {
	parts := versionPattern.FindStringSubmatch(version)
	if parts == nil {
		return "", ""
	}
	return parts[1], parts[2]
}
