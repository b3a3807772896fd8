package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"sigs.k8s.io/yaml"
)

// The formats of the output.
const (
	formatText = "text"
	formatJSON = "json"
	formatYAML = "yaml"
)

// formats are all of them.
var formats = []string{formatText, formatJSON, formatYAML}

// encode returns a value as JSON or YAML.
func encode(value any, format string) ([]byte, error) {
	if format == formatYAML {
		return yaml.Marshal(value)
	}
	text, err := json.MarshalIndent(value, "", "  ")
	return append(text, '\n'), err
}

// columnGap is how many spaces separate two columns.
const columnGap = 2

// writeAligned writes lines whose cells are separated by tabs as columns.
func writeAligned(text *strings.Builder, lines ...string) {
	table := tabwriter.NewWriter(text, 0, 0, columnGap, ' ', 0)
	for _, line := range lines {
		fmt.Fprintln(table, line)
	}
	_ = table.Flush() // Writing to memory does not fail.
}

// oneOf fails if the value of a flag is none of these.
func oneOf(flag, value string, values []string) error {
	if slices.Contains(values, value) {
		return nil
	}
	return fmt.Errorf("--%s %s: give one of %v", flag, value, values)
}

// writeAs writes a result in a format, for which text is the one for people. what names the result in errors.
func writeAs(out io.Writer, format string, found any, text, what string) error {
	encoded := []byte(text)
	if format != formatText {
		var err error
		if encoded, err = encode(found, format); err != nil {
			return fmt.Errorf("encoding %s: %w", what, err)
		}
	}
	if _, err := out.Write(encoded); err != nil {
		return fmt.Errorf("writing %s: %w", what, err)
	}
	return nil
}
