package upgrades

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/test/campaign/fault"
	"github.com/clusterpolicy/gpu-operator/test/chance"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

const crashNodes = 6

// crash is where the operator is killed: before or after its nth write since the edit.
type crash struct {
	nth   int64
	phase fault.Phase
}

func (c crash) String() string { return fmt.Sprintf("%s write %d", c.phase, c.nth) }

// TestCrashes kills the operator before and after each of its writes of an upgrade of 6 nodes: a sample of 4, or all of
// them with TEST_FULL. The end must be that of the undisturbed upgrade.
func TestCrashes(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: crashNodes, scale: 0.1, policy: budget(3, "3"), stopped: true})
	for _, name := range nodeNames(crashNodes) {
		e.deployLater(workload{name: "user-" + name, node: name, gpus: "1"}, 1)
	}
	proxy, url := e.front()
	r := &restarted{env: e, url: url}
	r.start()
	t.Cleanup(r.stop)
	e.awaitReady(crashNodes)
	for _, name := range nodeNames(crashNodes) {
		e.awaitRunning("user-"+name, 1)
	}
	version := versions()
	from := len(proxy.Writes())
	want := e.upgradeEnd(version())
	writes := proxy.Writes()[from:]
	t.Logf("the undisturbed upgrade makes %d writes:\n%s", len(writes), listed(writes))
	passed := openPassed(t, e.binary)
	tried, hits := 0, 0
	for _, c := range crashes(t, int64(len(writes))) {
		t.Run(c.String(), func(t *testing.T) {
			if passed.has(c) {
				t.Skip("passed before, with this operator")
			}
			e := e.in(t)
			tried++
			remove, struck := proxy.Add(fault.Rule{
				Match: fault.Match{Verbs: fault.Writes()}, Phase: c.phase, From: c.nth, Count: 1,
				Action: fault.Action{Call: r.kill, Drop: true},
			})
			from := len(proxy.Writes())
			end := e.upgradeEnd(version())
			made := len(proxy.Writes()) - from
			remove()
			e.Expect(end).To(Equal(want))
			if !struck() {
				// Writes are coalesced, so that an upgrade may have some fewer. Then nothing was tried.
				e.Expect(made).To(BeNumerically("<", c.nth), "the kill did not strike")
				t.Skipf("this upgrade made %d writes only", made)
			}
			hits++
			passed.add(t, c)
		})
	}
	if tried > 0 {
		e.Expect(hits).To(BeNumerically(">", 0), "kills of %d that strike", tried)
	}
	e.writesNothing()
}

// crashes returns those to try.
func crashes(t *testing.T, writes int64) []crash {
	t.Helper()
	if !full() {
		writes = max(1, writes-4) // An upgrade may make some fewer, and so not reach the last ones.
	}
	var all []crash
	for nth := range writes {
		all = append(all, crash{nth + 1, fault.Before}, crash{nth + 1, fault.After})
	}
	if full() {
		return all
	}
	return chance.Sample(t, "crashes", all, 4, crash.String)
}

// upgradeEnd upgrades all nodes and returns their end.
func (e *env) upgradeEnd(version string) []string {
	e.t.Helper()
	since, users := e.watch.now(), e.users(crashNodes)
	e.install(version)
	e.awaitUpgraded(version, nodeNames(crashNodes)...)
	e.atRest()
	var ends []string
	replaced, cordons := e.watch.replaced(since), e.watch.cordons(since)
	for _, name := range nodeNames(crashNodes) {
		e.awaitRunning("user-"+name, 1)
		node := e.watch.node(name)
		ends = append(ends, fmt.Sprintf("%s: %s cordoned=%t cordons=%d drivers=%d labels=%d annotations=%s", name, node.state,
			node.cordoned, cordons[name], replaced[name], len(node.labels), keys(node.annotations)))
	}
	e.Expect(len(e.watch.most(since))).To(BeNumerically("<=", 3), "the budget")
	status := e.policy().Status
	// The audit log does not show whether an eviction has succeeded whose caller was killed.
	left := e.users(crashNodes)
	evicted := slices.DeleteFunc(users, func(uid string) bool { return slices.Contains(left, uid) })
	return append(ends, fmt.Sprintf("%d pods evicted, policy %s, done %d, pending %d, failed %d, pods left: %s",
		len(evicted), status.State, status.Upgrade.Done, status.Upgrade.Pending, status.Upgrade.Failed,
		strings.Join(e.strayPods(), " ")))
}

// strayPods returns the operator's pods that no DaemonSet controls, such as those that pull images.
func (e *env) strayPods() []string {
	e.t.Helper()
	pods := &corev1.PodList{}
	e.Expect(e.quiet.List(e.t.Context(), pods, client.InNamespace(namespace))).To(Succeed())
	var stray []string
	for i := range pods.Items {
		if owner := metav1.GetControllerOf(&pods.Items[i]); owner == nil || owner.Kind != "DaemonSet" {
			stray = append(stray, pods.Items[i].Name)
		}
	}
	return stray
}

func keys(all map[string]string) string {
	var names []string
	for key := range all {
		names = append(names, key)
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

func listed(writes []fault.Record) string {
	var lines []string
	for _, write := range writes {
		lines = append(lines, fmt.Sprintf("%4d %s %d", write.Ordinal, write.Request, write.Code))
	}
	return strings.Join(lines, "\n")
}

// restarted is an operator that starts again whenever it was killed.
type restarted struct {
	env *env
	url string

	lock    sync.Mutex
	process *cluster.Operator
	stopped bool
}

func (r *restarted) start() {
	process := r.env.startAt(r.url)
	r.lock.Lock()
	defer r.lock.Unlock()
	r.process = process
	go func() {
		<-process.Done()
		r.lock.Lock()
		stopped := r.stopped
		r.lock.Unlock()
		if !stopped {
			r.start()
		}
	}()
}

// kill ends the operator as a node failure does. It is called while the operator waits for a response.
func (r *restarted) kill() {
	r.lock.Lock()
	process := r.process
	r.lock.Unlock()
	process.Kill()
}

func (r *restarted) stop() {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.stopped = true
}

// passedCrashes are the crashes that an operator has passed, in a file that each run extends.
type passedCrashes struct {
	path string
	all  string
}

func openPassed(t *testing.T, binary string) *passedCrashes {
	t.Helper()
	p := &passedCrashes{}
	if !full() {
		return p
	}
	info, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(repo, ".cache", "upgrades")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	p.path = filepath.Join(dir, fmt.Sprintf("crashes-%d-%d", info.Size(), info.ModTime().Unix()))
	text, err := os.ReadFile(p.path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	p.all = string(text)
	return p
}

func (p *passedCrashes) has(c crash) bool { return strings.Contains(p.all, c.String()+"\n") }

// add records a crash immediately, so that the run can be interrupted.
func (p *passedCrashes) add(t *testing.T, c crash) {
	t.Helper()
	if p.path == "" || t.Failed() {
		return
	}
	p.all += c.String() + "\n"
	if err := os.WriteFile(p.path, []byte(p.all), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestTwoManagers: two operators without leader election at the same time keep the budget.
func TestTwoManagers(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: crashNodes, policy: budget(2, "2")})
	e.start()
	e.atRest()
	since := e.watch.now()
	e.install(after)
	e.awaitUpgraded(after, nodeNames(crashNodes)...)
	e.Expect(len(e.watch.most(since))).To(BeNumerically("<=", 2), "%v were unavailable", e.watch.most(since))
	e.Expect(e.watch.replaced(since)).To(And(HaveLen(crashNodes), HaveEach(1)), "new driver pods of each node")
	e.Expect(e.watch.cordons(since)).To(And(HaveLen(crashNodes), HaveEach(1)), "cordons of each node")
}
