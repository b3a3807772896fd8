// Package text has what messages to users have in common: how they are joined and bounded.
package text

import "strings"

// Join joins the parts that are not empty with colons.
func Join(parts ...string) string {
	var found []string
	for _, part := range parts {
		if part != "" {
			found = append(found, part)
		}
	}
	return strings.Join(found, ": ")
}

// Truncate returns the text, or as much of it as fits in this many bytes with "..." after it. It cuts no character.
func Truncate(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const more = "..."
	cut := most - len(more)
	for cut > 0 && text[cut]&0xC0 == 0x80 {
		cut--
	}
	return text[:cut] + more
}

// Clip returns the text, or as much of it as fits in this many bytes. It cuts no character, and nothing shows that the
// text was longer.
func Clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}
