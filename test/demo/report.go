package main

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// result is the outcome of the demo.
type result struct {
	frame frame
	// ready: the policy became ready within the timeout.
	ready bool
	// sinceApply is the time from applying the policy to the verdict, sinceStart from the start of the command.
	sinceApply, sinceStart time.Duration
	// nodes are the times from applying the policy to the condition of each ready node.
	nodes []time.Duration
	// usage is the operator's resource usage, and calls its requests since it started.
	usage cluster.Usage
	calls cluster.Calls
}

// lines returns the report of the result without the last line.
func (r result) lines() []string {
	var lines []string
	if !r.ready {
		lines = append(lines, r.frame.reasons()...)
	}
	verdict := "not ready"
	if r.ready {
		verdict = "ready"
	}
	lines = append(lines, fmt.Sprintf("%s %.1f s after applying the policy, %.1f s after the command",
		verdict, r.sinceApply.Seconds(), r.sinceStart.Seconds()))
	if len(r.nodes) > 0 {
		lines = append(lines, fmt.Sprintf("%s=True after: p50 %.1f s, p95 %.1f s (%d of %d nodes)", labels.ConditionGPUReady,
			percentile(r.nodes, 50).Seconds(), percentile(r.nodes, 95).Seconds(), len(r.nodes), len(r.frame.rows)))
	}
	lines = append(lines, fmt.Sprintf("operator: %d MB memory, %.1f s CPU, %d API writes",
		r.usage.RSS>>20, r.usage.CPU.Seconds(), len(r.calls.Writes())))
	if forbidden := r.calls.Forbidden(); len(forbidden) > 0 {
		lines = append(lines, "requests of the operator that its RBAC does not permit:",
			strings.TrimSuffix(forbidden.String(), "\n"))
	}
	return lines
}

// lastLine is for programs: its format must not change.
func (r result) lastLine(policy string) string {
	state := v1.StateNotReady
	if r.ready {
		state = v1.StateReady
	}
	return fmt.Sprintf("%s: %s, %d/%d GPU nodes", policy, state, r.frame.ready(), len(r.frame.rows))
}

// percentile returns the smallest value that p percent of the values do not exceed.
func percentile(values []time.Duration, percent float64) time.Duration {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(math.Ceil(percent/100*float64(len(sorted))))-1]
}

// reasons returns why the policy is not ready: its status, and for each node that is not ready its entry in the status
// and its condition.
func (f frame) reasons() []string {
	lines := []string{"", "The policy is not ready:", "  " + f.verdict()}
	if f.policy == nil {
		return lines
	}
	entries := map[string]v1.NodeStatus{}
	for _, entry := range f.policy.Status.Nodes {
		entries[entry.Name] = entry
	}
	shown, hidden := 0, 0
	for _, r := range f.worst(len(f.rows)) {
		entry, listed := entries[r.name]
		if isTrue(r.condition) && (!listed || entry.Ready) {
			continue
		}
		if shown == maxRows {
			hidden++
			continue
		}
		shown++
		lines = append(lines, "  "+r.name, "    "+policySays(entry, listed), "    "+nodeSays(r))
	}
	if hidden > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more nodes", hidden))
	}
	return append(lines, "")
}

func policySays(entry v1.NodeStatus, listed bool) string {
	const source = "policy status.nodes: "
	switch {
	case !listed:
		return source + "not listed"
	case entry.Ready:
		return source + "ready"
	}
	operand := ""
	if entry.Operand != "" {
		operand = ", operand " + entry.Operand
	}
	return fmt.Sprintf("%sstage %s%s: %s: %s", source, entry.Stage, operand, entry.Reason, entry.Message)
}

func nodeSays(r row) string {
	if r.condition == nil {
		return fmt.Sprintf("node condition %s: absent", labels.ConditionGPUReady)
	}
	return fmt.Sprintf("node condition %s=%s: %s: %s", labels.ConditionGPUReady, r.condition.Status, r.condition.Reason,
		r.condition.Message)
}

// hints returns commands to try on the running cluster, and to enter its network namespace if it has one.
func hints(kubeconfig, metrics string, ownNetwork bool) []string {
	lines := []string{
		"",
		"The cluster keeps running until Ctrl-C. In another terminal:",
		"",
	}
	if ownNetwork {
		// This is the case with a real node.
		lines = append(lines, fmt.Sprintf("  nsenter --net=/proc/%d/ns/net bash", os.Getpid()))
	}
	return append(lines,
		"  make kubectl && export PATH=$PWD/bin:$PATH",
		"  export KUBECONFIG="+kubeconfig,
		"  kubectl get clusterpolicy",
		"  kubectl gpu status",
		"  kubectl get nodes -o custom-columns='NODE:.metadata.name,"+
			`READY:.status.conditions[?(@.type=="`+labels.ConditionGPUReady+`")].status,`+
			`REASON:.status.conditions[?(@.type=="`+labels.ConditionGPUReady+`")].reason,`+
			`MESSAGE:.status.conditions[?(@.type=="`+labels.ConditionGPUReady+`")].message'`,
		"  kubectl -n "+cluster.OperatorNamespace+" get daemonsets,pods",
		"  curl http://"+metrics+"/metrics",
		"",
	)
}
