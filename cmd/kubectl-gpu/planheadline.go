package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/cli/preview"
)

// headline says in one or two lines what a preview means: first what happens to GPUs and drivers, then the rest.
func headline(p *preview.Preview) string {
	lines := slices.DeleteFunc([]string{
		inOneLine(refusedText(p), losingText(p.Losing), upgradedText(&p.Upgrades)),
		inOneLine(heldText(&p.Upgrades), restText(p)),
	}, func(line string) bool { return line == "" })
	switch {
	case len(lines) == 0 && len(p.Spec) > 0:
		return "Only the policy changes."
	case len(lines) == 0:
		return "Nothing changes."
	}
	return strings.Join(lines, "\n")
}

// inOneLine joins the sentences that are not empty.
func inOneLine(sentences ...string) string {
	return strings.Join(slices.DeleteFunc(sentences, func(one string) bool { return one == "" }), " ")
}

// refusedText says that not all of the policy would be applied; empty if all of it would.
func refusedText(p *preview.Preview) string {
	if errRefused(p) == nil {
		return ""
	}
	return "A part of it would be refused."
}

// losingText says which nodes would have no usable GPU any more; empty for none.
func losingText(nodes []string) string {
	switch len(nodes) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("1 node loses its GPUs: %s.", nodes[0])
	}
	return fmt.Sprintf("%d nodes lose their GPUs: %s.", len(nodes), named(nodes))
}

// upgradedText says how many nodes get another driver, and what that means for the pods on them; empty for none.
func upgradedText(u *preview.Upgrades) string {
	nodes := len(u.Nodes) - u.Held()
	if nodes == 0 {
		return ""
	}
	evicted, blocked := 0, 0
	for i := range u.Nodes {
		evicted, blocked = evicted+len(u.Nodes[i].Evicted), blocked+len(u.Nodes[i].Blocked)
	}
	text := count(nodes, "node") + agreed(nodes, " restarts its driver", " restart their drivers")
	if evicted == 0 {
		return text + ", and no pod with GPUs is evicted."
	}
	text += fmt.Sprintf(" and %s %s with GPUs", agreed(nodes, "evicts", "evict"), count(evicted, "pod"))
	if blocked > 0 {
		text += fmt.Sprintf("; %s cannot be evicted now", count(blocked, "pod"))
	}
	return text + "."
}

// heldText says how many nodes keep an outdated driver; empty for none.
func heldText(u *preview.Upgrades) string {
	held := u.Held()
	if held == 0 {
		return ""
	}
	return fmt.Sprintf("%s %s an outdated driver for now.", count(held, "node"), agreed(held, "keeps", "keep"))
}

// restText says which pods of operands restart or end, or else that objects change without; empty if none changes.
func restText(p *preview.Preview) string {
	switch written := len(p.Objects); {
	case p.Replaced.Pods > 0:
		return fmt.Sprintf("%s of operands on %s %s replaced or removed.", count(p.Replaced.Pods, "pod"),
			count(p.Replaced.Nodes, "node"), agreed(p.Replaced.Pods, "is", "are"))
	case written > 0 && len(p.Upgrades.Nodes) == 0:
		return fmt.Sprintf("%s %s, and no pod restarts.", count(written, "object"), agreed(written, "changes", "change"))
	}
	return ""
}

// agreed returns the form of a verb for a number.
func agreed(number int, one, more string) string {
	if number == 1 {
		return one
	}
	return more
}
