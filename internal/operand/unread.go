package operand

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

// FileNotes returns a sentence for each part that its reader does not take, of the files in these keys of an object.
func (in Input) FileNotes(use Use, keys ...string) []string {
	var notes []string
	for _, key := range keys {
		for _, problem := range in.Contents[use.Reference].FileProblems[key] {
			notes = append(notes, fmt.Sprintf("%s: %s, key %s, %s", use.Field, use.Reference, key, problem))
		}
	}
	return notes
}

// UnreadKeys returns a sentence for each object that the operands use, with its keys that none of them reads, such as a
// misspelt one. An object of which one of them reads every key has none, nor has one that the spec names a key of.
func (in Input) UnreadKeys(operands []*Operand) []string {
	var order []Reference
	uses, read, noted := map[Reference]Use{}, map[Reference][]string{}, map[Reference][]string{}
	every := map[Reference]bool{}
	for _, o := range operands {
		for _, use := range o.UsesOf(in) {
			if _, seen := uses[use.Reference]; !seen {
				order, uses[use.Reference] = append(order, use.Reference), use
			}
			keys := slices.Concat(use.Keys, use.MayRead)
			every[use.Reference] = every[use.Reference] || len(keys) == 0 || use.Configures || use.Field == caBundleField
			read[use.Reference] = append(read[use.Reference], keys...)
			noted[use.Reference] = append(noted[use.Reference], use.Noted...)
		}
	}
	var notes []string
	for _, reference := range order {
		if content := in.Contents[reference]; !every[reference] && !content.Assumed {
			notes = append(notes, unreadKeys(uses[reference], content.Keys, read[reference], noted[reference])...)
		}
	}
	return notes
}

// unreadKeys returns a sentence with the keys that are neither read nor noted; none if there are none.
func unreadKeys(use Use, keys, read, noted []string) []string {
	unread := slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		return slices.Contains(read, key) || slices.Contains(noted, key)
	})
	if len(unread) == 0 {
		return nil
	}
	slices.Sort(read)
	return []string{fmt.Sprintf("%s: %s has the keys %s, which nothing reads: use %s, or remove them", use.Field,
		use.Reference, text.Truncate(strings.Join(unread, ", "), maxNames), strings.Join(slices.Compact(read), ", "))}
}
