package marker

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// Assignment is one line KEY=value of a marker.
type Assignment struct {
	Key   string
	Value string
}

// RuntimeFollows is in the marker of a driver whose toolkit restarts the container runtime.
var RuntimeFollows = Assignment{Key: labels.RuntimeFollowsKey, Value: labels.True}

// maxSize, in bytes, limits what is read: a marker has a few hundred.
const maxSize = 64 << 10

var (
	keyPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// plainPattern is what a shell takes literally without quotes, on the right of "=".
	plainPattern = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,-]*$`)
)

// Format returns the content of a marker with these assignments, in this order. A value that a shell would not
// take literally is put in single quotes. It fails on a key that is not a valid name of a shell variable, and on
// a value with a single quote or a line break, which no driver path has.
func Format(assignments []Assignment) ([]byte, error) {
	var out bytes.Buffer
	for _, a := range assignments {
		if !keyPattern.MatchString(a.Key) {
			return nil, fmt.Errorf("%q is not a name of a shell variable", a.Key)
		}
		value := a.Value
		if !plainPattern.MatchString(value) {
			if strings.ContainsAny(value, "'\n\r\x00") {
				return nil, fmt.Errorf("the value of %s must not have a single quote or a line break: %q", a.Key, value)
			}
			value = "'" + value + "'"
		}
		fmt.Fprintf(&out, "%s=%s\n", a.Key, value)
	}
	return out.Bytes(), nil
}

// Parse reads the content of a marker: lines KEY=value, KEY='value' or KEY="value", empty lines and lines that
// start with "#". Nothing is ever evaluated: what a shell would expand, split or run is an error that names the
// line, and so is a duplicate key.
func Parse(content []byte) ([]Assignment, error) {
	if len(content) > maxSize {
		return nil, fmt.Errorf("has %d bytes, more than the %d that a marker may have", len(content), maxSize)
	}
	var assignments []Assignment
	seen := map[string]bool{}
	for i, line := range strings.Split(string(content), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, raw, found := strings.Cut(line, "=")
		if !found || !keyPattern.MatchString(key) {
			return nil, fmt.Errorf("line %d is not an assignment KEY=value: %q", i+1, line)
		}
		if seen[key] {
			return nil, fmt.Errorf("line %d assigns %s for the second time", i+1, key)
		}
		seen[key] = true
		value, ok := unquote(raw)
		if !ok {
			return nil, fmt.Errorf("line %d has a value that is not literal: %q", i+1, line)
		}
		assignments = append(assignments, Assignment{Key: key, Value: value})
	}
	return assignments, nil
}

// unquote returns the literal value, and whether raw is one.
func unquote(raw string) (string, bool) {
	for quote, special := range map[string]string{`'`: `'`, `"`: "\"$`\\"} {
		if len(raw) >= 2 && strings.HasPrefix(raw, quote) && strings.HasSuffix(raw, quote) {
			inner := raw[1 : len(raw)-1]
			return inner, !strings.ContainsAny(inner, special+"\x00")
		}
	}
	return raw, plainPattern.MatchString(raw)
}

// lookup returns the value of key and whether it is assigned.
func lookup(assignments []Assignment, key string) (string, bool) {
	for _, a := range assignments {
		if a.Key == key {
			return a.Value, true
		}
	}
	return "", false
}
