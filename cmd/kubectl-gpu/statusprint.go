package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/cli/overview"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// column is one of the table of nodes.
type column struct {
	title string
	value func(*overview.Node) string
	// rank is that of its heading.
	rank int
	// wide columns are only in the format wide. optional ones are left out of the other one if all values are empty.
	wide, optional bool
}

// columns returns those of the table at a time.
func columns(now time.Time) []column {
	return []column{
		{title: "NODE", value: func(n *overview.Node) string { return n.Name }},
		{title: "READY", value: func(n *overview.Node) string { return string(n.Ready) }},
		{title: "STAGE", value: func(n *overview.Node) string { return string(n.Stage) }, rank: 5},
		{title: "USABLE", value: (*overview.Node).UsableText},
		{title: "FREE", value: (*overview.Node).FreeText, rank: 7},
		{title: "PRODUCT", value: func(n *overview.Node) string { return n.Product }, rank: 2},
		{title: "MIG", value: (*overview.Node).MIGText, rank: 4, optional: true},
		{title: "SHARING", value: func(n *overview.Node) string { return n.Sharing }, rank: 3, optional: true},
		{title: "DRIVER", value: func(n *overview.Node) string { return n.Driver }, rank: 1},
		{title: "UPGRADE", value: (*overview.Node).UpgradeText, rank: 8, optional: true},
		{title: "HEALTH", value: func(n *overview.Node) string { return n.Health }, rank: 9, optional: true},
		{title: "CORDONED", value: cordonText, rank: 8, optional: true},
		{title: "REASON", value: func(n *overview.Node) string { return n.Reason }},
		{title: "SINCE", value: func(n *overview.Node) string { return n.SinceText(now) }, rank: 6},
		{title: "OPERAND", value: func(n *overview.Node) string { return n.Operand }, wide: true},
		{title: "MESSAGE", value: func(n *overview.Node) string { return n.Message }, wide: true},
	}
}

func cordonText(n *overview.Node) string {
	if n.Cordoned {
		return "yes"
	}
	return ""
}

// maxRows is how many nodes a table has that is not wide. Of more, those that are not ready are shown, at most
// maxUnready, below the number of nodes in each state.
const (
	maxRows    = 30
	maxUnready = 15
)

// print prints an overview of a cluster in the format of the flags.
func (o statusOptions) print(out io.Writer, live *liveCluster, found overview.Overview, now time.Time) error {
	var text []byte
	switch o.output {
	case formatHTML:
		return live.writePage(out, found, o.notReady, now)
	case formatJSON, formatYAML:
		var err error
		if text, err = encode(found, o.output); err != nil {
			return fmt.Errorf("encoding the status: %w", err)
		}
	default:
		text = []byte(o.text(found, now, newPalette(out)))
	}
	if _, err := out.Write(text); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	return nil
}

// text returns an overview as the flags choose it.
func (o statusOptions) text(found overview.Overview, now time.Time, colours palette) string {
	wide := o.output == formatWide
	switch {
	case o.noHeaders:
		text := &strings.Builder{}
		writeNodes(text, found.Nodes, now, wide, false, colours)
		return text.String()
	case len(o.names) > 0 || o.notReady || o.sortBy != "":
		return summaryText(found, colours) + nodesText(found.Nodes, now, wide, colours)
	}
	return overviewText(found, now, wide, colours)
}

// overviewText returns an overview as people read it, on one screen unless it is wide.
func overviewText(found overview.Overview, now time.Time, wide bool, colours palette) string {
	text := summaryText(found, colours)
	if wide || len(found.Nodes) <= maxRows {
		return text + nodesText(found.Nodes, now, wide, colours)
	}
	text += "\n" + groupsText(overview.Groups(found.Nodes), colours)
	unready := overview.Unready(found.Nodes)
	if shown := unready[:min(len(unready), maxUnready)]; len(shown) > 0 {
		text += nodesText(shown, now, wide, colours)
		unready = unready[len(shown):]
	}
	if len(unready) > 0 {
		text += fmt.Sprintf("%d more are not ready: kubectl gpu status --not-ready lists them.\n", len(unready))
	}
	return text
}

// summaryText returns the state of the policy and of all nodes.
func summaryText(found overview.Overview, colours palette) string {
	text := &strings.Builder{}
	writePolicy(text, found.Policy, colours)
	s := found.Summary
	fmt.Fprintf(text, "%d of %d nodes ready, %d of %d GPUs usable", s.ReadyNodes, s.Nodes, s.UsableGPUs, s.GPUs)
	if s.FreeGPUs != nil {
		fmt.Fprintf(text, ", %d whole GPUs free", *s.FreeGPUs)
	}
	if s.GPUsByClaims > 0 {
		fmt.Fprintf(text, ", and %d offered by claims (DRA)", s.GPUsByClaims)
	}
	if s.NodesOfUnknownGPUs > 0 {
		fmt.Fprintf(text, "; the number of GPUs of %s is not known", count(s.NodesOfUnknownGPUs, "node"))
	}
	text.WriteString("\n")
	if found.Summary.Nodes == 0 && len(found.Nodes) == 0 {
		fmt.Fprintf(text, "\nNo node has the label %s=%s.\n", labels.GPUPresent, labels.True)
	}
	return wrap(text.String(), colours.width)
}

// nodesText returns the table of nodes below an empty line; nothing without nodes.
func nodesText(nodes []overview.Node, now time.Time, wide bool, colours palette) string {
	if len(nodes) == 0 {
		return ""
	}
	text := &strings.Builder{}
	text.WriteString("\n")
	writeNodes(text, nodes, now, wide, true, colours)
	return text.String()
}

// writeNodes writes the table of nodes.
func writeNodes(
	text *strings.Builder, nodes []overview.Node, now time.Time, wide, titled bool, colours palette,
) {
	shown := shownColumns(columns(now), nodes, wide)
	all := nodeTable{titled: titled}
	for _, c := range shown {
		all.headings = append(all.headings, heading{c.title, c.rank})
	}
	for i := range nodes {
		all.add(nodes[i].Ready, cells(shown, &nodes[i])...)
	}
	if wide {
		colours.width = 0
	}
	all.write(text, colours)
}

// writeColoured writes lines as columns, each in the colour of a state.
func writeColoured(text *strings.Builder, lines []string, states []overview.Readiness, colours palette) {
	aligned := &strings.Builder{}
	writeAligned(aligned, lines...)
	for i, line := range strings.SplitAfter(aligned.String(), "\n") {
		if i < len(states) {
			line = colours.node(states[i], line)
		}
		text.WriteString(line)
	}
}

// groupsText returns the table of groups of nodes.
func groupsText(groups []overview.Group, colours palette) string {
	all := nodeTable{titled: true, headings: []heading{
		{"NODES", 0}, {"READY", 0}, {"STAGE", 1}, {"USABLE", 0}, {"PRODUCT", 2}, {"REASON", 0},
	}}
	for _, g := range groups {
		all.add(g.Ready, strconv.Itoa(g.Nodes), string(g.Ready), cmp.Or(string(g.Stage), "-"),
			fmt.Sprintf("%d/%d", g.GPUs.Usable, g.GPUs.Total), cmp.Or(g.Product, "-"), cmp.Or(g.Reason, "-"))
	}
	text := &strings.Builder{}
	all.write(text, colours)
	return text.String()
}

// node colours the line of a node; after it was aligned, as colours count as characters there.
func (p palette) node(ready overview.Readiness, line string) string {
	line = strings.TrimSuffix(line, "\n")
	switch ready {
	case overview.NotReady:
		line = p.red(line)
	case overview.Unknown:
		line = p.yellow(line)
	case overview.Ready, overview.Excluded:
	}
	return line + "\n"
}

func writePolicy(text *strings.Builder, policy *overview.Policy, colours palette) {
	if policy == nil {
		text.WriteString("No ClusterPolicy: the operator does nothing until one is created.\n")
		return
	}
	switch policy.Ready {
	case "True":
		fmt.Fprintf(text, "ClusterPolicy %s is %s.\n", policy.Name, colours.green("ready"))
	case "False":
		fmt.Fprintf(text, "ClusterPolicy %s is %s: %s: %s\n", policy.Name, colours.red("not ready"), policy.Reason,
			policy.Message)
	default:
		fmt.Fprintf(text, "ClusterPolicy %s: %s\n", policy.Name, policy.Message)
	}
	for _, limit := range policy.Limits {
		fmt.Fprintf(text, "%s: %s\n", colours.yellow(limit.Reason), limit.Message)
	}
	if u := policy.Upgrade; policy.IsUpgrading() {
		fmt.Fprintf(text, "Driver upgrade to %s: %d pending, %d in progress, %d done, %d failed, %d held. %s\n",
			u.Target, u.Pending, u.InProgress, u.Done, u.Failed, u.Held, u.Message)
	}
}

// shownColumns returns the columns that are not left out.
func shownColumns(all []column, nodes []overview.Node, wide bool) []column {
	var shown []column
	for _, c := range all {
		if wide || !c.wide && (!c.optional || hasValue(c, nodes)) {
			shown = append(shown, c)
		}
	}
	return shown
}

func hasValue(c column, nodes []overview.Node) bool {
	for i := range nodes {
		if c.value(&nodes[i]) != "" {
			return true
		}
	}
	return false
}

func titles(shown []column) string {
	var all []string
	for _, c := range shown {
		all = append(all, c.title)
	}
	return strings.Join(all, "\t")
}

// cells returns the values of a node. An empty one is a dash, so that programs can split the line.
func cells(shown []column, n *overview.Node) []string {
	var all []string
	for _, c := range shown {
		all = append(all, cmp.Or(strings.ReplaceAll(c.value(n), "\n", " "), "-"))
	}
	return all
}

// row returns a line of the table.
func row(shown []column, n *overview.Node) string { return strings.Join(cells(shown, n), "\t") }

// screen shows an overview that changes.
type screen struct {
	out        io.Writer
	wide       bool
	isTerminal bool
	// notes takes what is no line of the table, unless the output is a terminal; noted has the last of these.
	notes io.Writer
	noted string
	// titled reports whether the titles have been printed, and printed are the lines of the nodes that have been, by name.
	titled  bool
	printed map[string]string
}

// gone is shown, once, of a node that the cluster no longer has, or that no longer has a GPU.
const gone overview.Readiness = "Gone"

func newScreen(out, notes io.Writer, wide bool) *screen {
	return &screen{out: out, notes: notes, wide: wide, isTerminal: isTerminal(out), printed: map[string]string{}}
}

// show replaces what is on the terminal, or prints the lines that have changed. undecodable are the errors of the
// policies that cannot be decoded, by name.
func (s *screen) show(found overview.Overview, undecodable map[string]error, now time.Time) error {
	notes := undecodableText(undecodable)
	if s.isTerminal {
		// Cursor to the top, and clear what follows.
		_, err := fmt.Fprintf(s.out, "\x1b[H\x1b[2J%s%s", notes, overviewText(found, now, s.wide, newPalette(s.out)))
		return err
	}
	if notes != s.noted {
		s.noted = notes
		if _, err := io.WriteString(s.notes, notes); err != nil {
			return err
		}
	}
	return s.showChanges(found, now)
}

// showChanges prints the lines of nodes that are new, changed or gone. Times are not compared.
func (s *screen) showChanges(found overview.Overview, now time.Time) error {
	all := columns(now)
	var shown, compared []column
	for _, c := range all {
		if s.wide || !c.wide {
			shown = append(shown, c)
		}
		if c.title != "SINCE" {
			compared = append(compared, c)
		}
	}
	var lines []string
	if !s.titled {
		s.titled = true
		lines = append(lines, titles(shown))
	}
	present := map[string]bool{}
	for i := range found.Nodes {
		n := &found.Nodes[i]
		present[n.Name] = true
		if line := row(compared, n); s.printed[n.Name] != line {
			s.printed[n.Name] = line
			lines = append(lines, row(shown, n))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.printed)) {
		if !present[name] {
			delete(s.printed, name)
			lines = append(lines, row(shown, &overview.Node{Name: name, Ready: gone}))
		}
	}
	text := &strings.Builder{}
	writeAligned(text, lines...)
	_, err := io.WriteString(s.out, text.String())
	return err
}
