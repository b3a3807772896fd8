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

// awaitRecorded waits until an Event tells of a failure: of the node, or of the policy for what is beside the ladder.
// What is only on its way becomes a failure by the deadline of its stage.
func (b *bed) awaitRecorded(line *failure, begin time.Time) {
	b.t.Helper()
	if line.untold || line.mode.itself || (line.mode.onItsWay && !b.hasDeadlines()) {
		return
	}
	p := line.patient
	kind, name := "Node", machineName
	if b.besideLadder(p.operand) {
		kind, name = "ClusterPolicy", policyName
	}
	causes := containAll(append(line.mode.says(p), machineName, string(p.operand)))
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

// hasDeadlines tells whether the policy has some that a test can wait for.
func (b *bed) hasDeadlines() bool {
	policy, err := b.policy()
	b.Expect(err).NotTo(HaveOccurred())
	return policy.Spec.Deadlines != nil
}

// failureTable tells of each failure how long it took to tell it and to be well again.
func failureTable(lines []*failure) string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "operand\tcontainer\tfailure\ttold after\tEvent\twell after the cure\tsaid")
	told, untold, recorded, failures, well := 0, 0, 0, 0, 0
	for _, line := range lines {
		wellAfter := "not awaited"
		if line.done {
			wellAfter, well = seconds(line.well), well+1
		}
		switch {
		case line.untold:
			untold++
		case line.told > 0:
			told++
		}
		if !line.untold && !line.mode.itself {
			failures++
		}
		if line.recorded > 0 {
			recorded++
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			line.patient.operand, line.patient.container, line.mode.name, line.toldAfter(), line.event(), wellAfter, line.said)
	}
	_ = table.Flush()
	return fmt.Sprintf(
		"\n%s%d/%d told by status and condition, %d/%d by an Event; %d not to be known, as nothing asks the container; "+
			"%d/%d well again without a hand",
		text.String(),
		told,
		len(lines)-untold,
		recorded,
		failures,
		untold,
		well,
		len(lines),
	)
}

func (f *failure) toldAfter() string {
	switch {
	case f.untold:
		return "no probe"
	case f.told > 0:
		return seconds(f.told)
	}
	return "never"
}

// event is when there was an Event, and its reason.
func (f *failure) event() string {
	switch {
	case f.recorded > 0:
		return f.reason + " " + seconds(f.recorded)
	case f.untold:
		return "no probe"
	case f.mode.itself:
		return "no failure"
	case f.mode.onItsWay:
		return "at the deadline"
	}
	return "never"
}

func seconds(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }
