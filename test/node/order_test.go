//go:build linux

package node_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/node"
)

// edge of the graph on a node: the main programs of an operand start after a marker.
type edge struct {
	operand operand.Name
	marker  labels.Marker
}

// edges returns all edges of the catalogue.
func edges(g *WithT) []edge {
	catalogue, err := operands.Catalogue()
	g.Expect(err).NotTo(HaveOccurred())
	var found []edge
	for _, o := range catalogue {
		for _, requirement := range o.Requires {
			if requirement.Scope == operand.Node {
				found = append(found, edge{o.Name, requirement.Marker})
			}
		}
	}
	return found
}

// delayed are the programs that are delayed in the tests of the order.
var delayed = []string{
	"driver-manager", "nvidia-driver", "nvidia-toolkit", "nvidia-device-plugin", "gpu-feature-discovery", "dcgm-exporter",
	"nv-hostengine",
	"nvidia-mig-manager",
}

// delay makes each program wait before it does anything, each time for another while up to most. The function undoes
// that.
func (b *env) delay(most time.Duration) (undo func()) {
	order := func(o *node.Order) {
		for _, program := range delayed {
			b.Expect(b.machine.Order(program, o)).To(Succeed())
		}
	}
	order(&node.Order{RandomDelay: most.String()})
	return func() { order(nil) }
}

// followMarkers records when each marker was first written since then, until the function that it returns is called. A
// validation that is repeated writes its marker again.
func (b *env) followMarkers(begin time.Time) (written func() map[labels.Marker]time.Time) {
	ctx, stop := context.WithCancel(b.t.Context())
	dir := b.machine.Running(labels.ValidationsDir)
	first := map[labels.Marker]time.Time{}
	var lock sync.Mutex
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			found, _ := filepath.Glob(filepath.Join(dir, "*"+labels.MarkerSuffix))
			lock.Lock()
			for _, path := range found {
				marker := labels.Marker(strings.TrimSuffix(filepath.Base(path), labels.MarkerSuffix))
				_, known := first[marker]
				if info, err := os.Stat(path); err == nil && !known && info.ModTime().After(begin) {
					first[marker] = info.ModTime()
				}
			}
			lock.Unlock()
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	})
	b.t.Cleanup(func() { stop(); group.Wait() })
	return func() map[labels.Marker]time.Time {
		lock.Lock()
		defer lock.Unlock()
		copied := map[labels.Marker]time.Time{}
		for marker, at := range first {
			copied[marker] = at
		}
		return copied
	}
}

// notPlayed are the operands whose programs are not played, so that none of their edges is seen.
var notPlayed = []operand.Name{"mps-control-daemon"}

// gaps waits until the main programs of each operand that has edges have started since then, except for some operands,
// and returns how long after the marker the first of them did; negative if before.
func (b *env) gaps(
	begin time.Time,
	written func() map[labels.Marker]time.Time,
	without ...operand.Name,
) map[edge]time.Duration {
	b.t.Helper()
	var found map[edge]time.Duration
	b.Eventually(func(g Gomega) {
		found = map[edge]time.Duration{}
		sets, err := b.client.AppsV1().
			DaemonSets(namespace).
			List(b.t.Context(), metav1.ListOptions{LabelSelector: labels.Operand})
		g.Expect(err).NotTo(HaveOccurred())
		starts, err := b.machine.Starts(begin)
		g.Expect(err).NotTo(HaveOccurred())
		at := written()
		for _, e := range edges(b.WithT) {
			if slices.Contains(without, e.operand) {
				continue
			}
			first := firstStart(ofOperand(sets.Items, e.operand), starts)
			g.Expect(first).NotTo(BeZero(), "the start of %s", e.operand)
			// A start without a marker is too early.
			g.Expect(at).To(HaveKey(e.marker), "marker %s", e.marker)
			found[e] = first.Sub(at[e.marker])
		}
	}, "3m", "100ms").Should(Succeed(), b.describe)
	return found
}

// ofOperand returns the DaemonSet of an operand, an empty one if it has none.
func ofOperand(sets []appsv1.DaemonSet, name operand.Name) appsv1.DaemonSet {
	for i := range sets {
		if sets[i].Labels[labels.Operand] == string(name) {
			return sets[i]
		}
	}
	return appsv1.DaemonSet{}
}

// firstStart returns when the first of a DaemonSet's main programs started; zero if none did.
func firstStart(set appsv1.DaemonSet, starts []node.Start) time.Time {
	for _, start := range starts {
		suffix, its := strings.CutPrefix(start.Pod, set.Name+"-")
		// The end of a pod's name has no dash: nvidia-dcgm-exporter-x is no pod of nvidia-dcgm.
		if !its || strings.Contains(suffix, "-") || start.Namespace != set.Namespace {
			continue
		}
		for i := range set.Spec.Template.Spec.Containers {
			if set.Spec.Template.Spec.Containers[i].Name == start.Container {
				return start.At
			}
		}
	}
	return time.Time{}
}

// checkOrder compares when the operands' main programs started with when the markers that they wait for were written.
func (b *env) checkOrder(begin time.Time, written func() map[labels.Marker]time.Time) {
	runs := []map[edge]time.Duration{b.gaps(begin, written, append(slices.Clone(notPlayed), "dcgm")...)}
	b.t.Log(orderTable(edges(b.WithT), runs))
	b.expectOrder(runs)
}

func (b *env) expectOrder(runs []map[edge]time.Duration) {
	for i, run := range runs {
		b.Expect(run).NotTo(BeEmpty())
		for e, gap := range run {
			b.Expect(gap).
				To(BeNumerically(">=", 0), "start %d: %s started %s before the marker %s", i+1, e.operand, -gap, e.marker)
		}
	}
}

// orderTable returns for each edge how often it was seen, and the shortest and the longest time from the marker to the
// start.
func orderTable(all []edge, runs []map[edge]time.Duration) string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(&text)
	fmt.Fprintln(table, "operand\tstarts after\tseen\ttoo early\tsoonest\tlatest")
	for _, e := range all {
		var seen []time.Duration
		early := 0
		for _, run := range runs {
			if gap, there := run[e]; there {
				seen = append(seen, gap.Round(time.Millisecond))
				if gap < 0 {
					early++
				}
			}
		}
		if len(seen) == 0 {
			fmt.Fprintf(table, "%s\t%s\t0\tnot installed\t\t\n", e.operand, e.marker.File())
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%s\t%s\n", e.operand, e.marker.File(), len(seen), early, slices.Min(seen),
			slices.Max(seen))
	}
	_ = table.Flush()
	return text.String()
}

// awaitRunning waits until the kubelet has seen each container run since then. A kubelet that finds a pod that was
// created and not started when the power was cut starts it immediately and skips all init containers but the first:
// https://github.com/kubernetes/kubernetes/issues/140309.
func (b *env) awaitRunning(begin time.Time) {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		pods, err := b.client.CoreV1().Pods(namespace).List(b.t.Context(), metav1.ListOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		for i := range pods.Items {
			g.Expect(pods.Items[i].Status.ContainerStatuses).NotTo(BeEmpty())
			for _, status := range pods.Items[i].Status.ContainerStatuses {
				g.Expect(status.State.Running).NotTo(BeNil(), "%s of %s", status.Name, pods.Items[i].Name)
				g.Expect(status.State.Running.StartedAt.Time).To(BeTemporally(">=", begin.Truncate(time.Second)))
			}
		}
	}, "1m", "100ms").Should(Succeed(), b.describe)
}

// manyStarts is how often the power is cut.
const manyStarts = 20

// TestTheOrderOfManyStarts cuts the power repeatedly, and delays every program differently each time.
func TestTheOrderOfManyStarts(t *testing.T) {
	if !cluster.FullCampaigns() {
		t.Skipf("%d starts take minutes: set TEST_FULL=1; TestFromNothingToValidated has two", manyStarts)
	}
	b := newEnv(t)
	b.loadNVIDIA()
	b.deployOperator(privileged)
	policy := samplePolicy()
	policy.Spec.DCGM = &v1.DCGMSpec{Enabled: new(true)}
	b.delay(3 * time.Second)
	begin := time.Now()
	written := b.followMarkers(begin)
	b.createPolicy(policy)
	runs := []map[edge]time.Duration{b.gaps(begin, written, notPlayed...)}
	b.awaitRunning(time.Time{}) // The operator was started before.
	for len(runs) < manyStarts {
		b.Expect(b.machine.PowerOff()).To(Succeed())
		begin = time.Now()
		b.Expect(b.machine.PowerOn(t.Context())).To(Succeed())
		runs = append(runs, b.gaps(begin, b.followMarkers(begin), notPlayed...))
		b.awaitRunning(begin)
		t.Logf("start %d took %s", len(runs), since(begin))
	}
	t.Log(orderTable(edges(b.WithT), runs))
	b.expectOrder(runs)
}
