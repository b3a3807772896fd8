// Package text joins and bounds the messages that users read. It has no text of its own.
package text

import (
	"fmt"
	"strings"
)

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

// Listed is how many names List has at most.
const Listed = 3

// List lists the first names, and says if there are more: their number would change a message too often.
func List(names []string) string {
	if len(names) > Listed {
		return strings.Join(names[:Listed], ", ") + " and more"
	}
	return strings.Join(names, ", ")
}

// Named lists the first names, and counts the others if there are more than most.
func Named(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// Truncate shortens the text to maxBytes, with "..." at the end if it was longer. It never splits a character.
func Truncate(text string, maxBytes int) string {
	if len(text) <= maxBytes {
		return text
	}
	const more = "..."
	cut := maxBytes - len(more)
	for cut > 0 && text[cut]&0xC0 == 0x80 {
		cut--
	}
	return text[:cut] + more
}

// TruncateBegin shortens the text to maxBytes, with "... " at the begin if it was longer. It splits no word.
func TruncateBegin(text string, maxBytes int) string {
	if len(text) <= maxBytes {
		return text
	}
	const more = "... "
	end := text[len(text)-maxBytes+len(more):]
	if _, after, found := strings.Cut(end, " "); found {
		end = after
	}
	return more + strings.ToValidUTF8(end, "")
}

// JoinWithin joins a message and its detail, either of which may be empty, in maxBytes. The detail, which has the cause
// at its end, loses its beginning, but keeps half of the place; then the message loses its end.
func JoinWithin(message, detail string, maxBytes int) string {
	whole := Join(message, detail)
	if len(whole) <= maxBytes || message == "" || detail == "" {
		return Truncate(whole, maxBytes)
	}
	const separator = ": "
	detail = TruncateBegin(detail, max(maxBytes/2, maxBytes-len(message)-len(separator)))
	return Join(Truncate(message, maxBytes-len(detail)-len(separator)), detail)
}

// Clip shortens the text to maxBytes like Truncate, but without "...".
func Clip(text string, maxBytes int) string {
	if len(text) <= maxBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxBytes], "")
}
