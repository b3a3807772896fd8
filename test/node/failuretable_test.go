//go:build linux

package node_test

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// awaitRecorded waits until there is an Event of a failure: of the node, or of the policy for auxiliary operands. What
// only takes long becomes a failure by the deadline of its stage.
func (b *env) awaitRecorded(line *failure, begin time.Time) {
	b.t.Helper()
	if line.hidden || line.mode.itself || (line.mode.pending && !b.hasDeadlines()) {
		return
	}
	p := line.target
	kind, name := "Node", machineName
	if b.isAuxiliary(p.operand) {
		kind, name = "ClusterPolicy", policyName
	}
	causes := containAll(append(line.mode.causes(p), machineName, string(p.operand)))
	var message string
	b.Eventually(func(g Gomega) {
		recorded, err := b.client.CoreV1().Events(metav1.NamespaceDefault).List(b.t.Context(), metav1.ListOptions{
			FieldSelector: fmt.Sprintf("involvedObject.kind=%s,involvedObject.name=%s,type=%s", kind, name,
				corev1.EventTypeWarning)})
		g.Expect(err).NotTo(HaveOccurred())
		var messages []string
		for _, event := range recorded.Items {
			if event.CreationTimestamp.Time.Before(begin.Truncate(time.Second)) {
				continue
			}
			messages = append(messages, event.Message)
			if matches, err := causes.Match(event.Message); err == nil && matches {
				line.reason, message = event.Reason, event.Message
			}
		}
		g.Expect(line.reason).NotTo(BeEmpty(), "%q", messages)
	}, "90s", "100ms").Should(Succeed(), b.describe)
	line.recorded = since(begin)
	b.t.Logf("Event of the %s after %s: %s: %s", kind, line.recorded, line.reason, message)
}

// hasDeadlines reports whether the policy has deadlines that a test can wait for.
func (b *env) hasDeadlines() bool {
	policy, err := b.policy()
	b.Expect(err).NotTo(HaveOccurred())
	return policy.Spec.Deadlines != nil
}

// failureTable returns for each failure how long it took to report it and to recover.
func failureTable(lines []*failure) string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "operand\tcontainer\tfailure\treported after\tEvent\trecovery after the repair\tmessage")
	reported, hidden, recorded, failures, recovered := 0, 0, 0, 0, 0
	for _, line := range lines {
		recoveryAfter := "not awaited"
		if line.done {
			recoveryAfter, recovered = seconds(line.recovery), recovered+1
		}
		switch {
		case line.hidden:
			hidden++
		case line.reported > 0:
			reported++
		}
		if !line.hidden && !line.mode.itself {
			failures++
		}
		if line.recorded > 0 {
			recorded++
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			line.target.operand, line.target.container, line.mode.name,
			line.reportedAfter(), line.event(), recoveryAfter, line.message)
	}
	_ = table.Flush()
	summary := fmt.Sprintf("%d/%d reported by status and condition, %d/%d by an Event; %d cannot be detected, without a "+
		"probe; %d/%d recovered without action",
		reported, len(lines)-hidden, recorded, failures, hidden, recovered, len(lines))
	return "\n" + text.String() + summary
}

func (f *failure) reportedAfter() string {
	switch {
	case f.hidden:
		return "no probe"
	case f.reported > 0:
		return seconds(f.reported)
	}
	return "never"
}

// event returns when there was an Event, and its reason.
func (f *failure) event() string {
	switch {
	case f.recorded > 0:
		return f.reason + " " + seconds(f.recorded)
	case f.hidden:
		return "no probe"
	case f.mode.itself:
		return "no failure"
	case f.mode.pending:
		return "at the deadline"
	}
	return "never"
}

func seconds(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }
