package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

const (
	beginPrefix = "<!-- generated: "
	beginSuffix = " -->"
	endMarker   = "<!-- end -->"
)

// replace puts the texts between the markers of their names. A part without a text, a text without a part, and a part
// without an end are errors.
func replace(page string, texts map[string]string) (string, error) {
	missing := maps.Clone(texts)
	var out strings.Builder
	part := ""
	for line := range strings.Lines(page) {
		trimmed := strings.TrimRight(line, "\n")
		switch {
		case part != "" && trimmed == endMarker:
			part = ""
		case part != "" && strings.HasPrefix(trimmed, beginPrefix):
			return "", fmt.Errorf("the part %s has no end", part)
		case part != "":
			continue
		case strings.HasPrefix(trimmed, beginPrefix):
			part = strings.TrimSuffix(strings.TrimPrefix(trimmed, beginPrefix), beginSuffix)
			text, found := texts[part]
			if !found {
				return "", fmt.Errorf("no text for the part %q", part)
			}
			delete(missing, part)
			line += "\n" + strings.TrimSpace(text) + "\n\n"
		}
		out.WriteString(line)
	}
	if part != "" {
		return "", fmt.Errorf("the part %s has no end", part)
	}
	if len(missing) > 0 {
		return "", fmt.Errorf("no markers for the parts %v", slices.Sorted(maps.Keys(missing)))
	}
	return out.String(), nil
}

// table is a table of Markdown.
func table(header []string, rows [][]string) string {
	var out strings.Builder
	line := func(cells []string) { fmt.Fprintf(&out, "| %s |\n", strings.Join(cells, " | ")) }
	line(header)
	fmt.Fprintf(&out, "|%s\n", strings.Repeat("---|", len(header)))
	for _, row := range rows {
		escaped := make([]string, len(row))
		for i, cell := range row {
			escaped[i] = strings.ReplaceAll(cell, "|", "\\|")
		}
		line(escaped)
	}
	return out.String()
}

// code is a span of code, or nothing for an empty text.
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}
