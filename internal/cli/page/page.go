package page

import (
	"bufio"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/cli/overview"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/version"
	"github.com/clusterpolicy/gpu-operator/internal/status/reasons"
)

// Input is what a page shows.
type Input struct {
	Overview overview.Overview
	// OnlyUnready lists only nodes that are not ready. What the page counts stays that of all.
	OnlyUnready bool
	// Read is when the cluster was read.
	Read time.Time
	// Context is the one of the kubeconfig; empty if it is not to be shown.
	Context string
	// Notes are what limits the page, such as policies that cannot be decoded.
	Notes []string
	// Reasons are those of package reasons.
	Reasons map[string]reasons.Explanation
	// Refresh is how often a live page refreshes itself; 0 for a page that stays as it is.
	Refresh time.Duration
	// Failure is why the cluster could not be read again after Read; nil if it was not tried, or succeeded.
	Failure error
}

var (
	//go:embed page.html.tmpl
	markup string
	//go:embed page.css
	style string
	//go:embed page.js
	script string

	parsed = template.Must(template.New("page").Parse(markup))
)

// Policy returns the Content-Security-Policy of a page: only its own style and script apply, and only a live page may
// send a request, to where it is from.
func Policy(live bool) string {
	connect := "'none'"
	if live {
		connect = "'self'"
	}
	return fmt.Sprintf("default-src 'none'; style-src %s; script-src %s; img-src data:; connect-src %s; base-uri 'none'; "+
		"form-action 'none'", hashOf(style), hashOf(script), connect)
}

// hashOf returns the source expression that admits this very text.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// Write writes the page.
func Write(out io.Writer, in Input) error {
	buffered := bufio.NewWriter(out)
	err := parsed.Execute(buffered, viewOf(in))
	if err == nil {
		err = buffered.Flush()
	}
	if err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}

// view is what the template prints.
type view struct {
	Input
	Policy policyView
	// Upgrade is that of the drivers; nil if none is due.
	Upgrade *upgradeView
	// Counts are the nodes by state, and BarWidth the width of a picture of them.
	Counts   []count
	BarWidth int
	Products []product
	Causes   []cause
	Devices  []devices
	// Nodes are those that the page lists, and Findings all with a finding of the health agent.
	Nodes, Findings []node
	// UsageKnown reports whether it is known what pods request.
	UsageKnown bool
	// NodeLabel is the label of nodes with GPUs.
	NodeLabel string
	Version   string

	CSP    template.HTMLAttr
	Style  template.CSS
	Script template.JS
}

func viewOf(in Input) view {
	o := &in.Overview
	groups := overview.Groups(o.Nodes)
	v := view{
		Input: in, Policy: policyOf(o.Policy, in.Reasons), Upgrade: upgradeOf(o.Policy), Counts: countsOf(groups),
		Products: productsOf(groups), Causes: causesOf(groups, in.Reasons),
		Devices: devicesOf(o.Nodes), UsageKnown: o.Summary.FreeGPUs != nil,
		NodeLabel: labels.GPUPresent + "=" + labels.True, Version: version.Version, BarWidth: len(o.Nodes),
		CSP:   template.HTMLAttr(`content="` + Policy(in.Refresh > 0) + `"`),
		Style: template.CSS(style), Script: template.JS(script),
	}
	for i := range o.Nodes {
		if o.Nodes[i].Health != "" {
			v.Findings = append(v.Findings, nodeOf(&o.Nodes[i], in))
		}
	}
	listed := o.Nodes
	if in.OnlyUnready {
		listed = overview.Unready(listed)
	}
	for i := range listed {
		v.Nodes = append(v.Nodes, nodeOf(&listed[i], in))
	}
	return v
}

// RefreshSeconds is Refresh in whole seconds.
func (v view) RefreshSeconds() int { return int(v.Refresh / time.Second) }

// ReadText is when the cluster was read, for people and for programs.
func (v view) ReadText() string  { return v.Read.UTC().Format("2006-01-02 15:04:05 UTC") }
func (v view) ReadStamp() string { return v.Read.UTC().Format(time.RFC3339) }
