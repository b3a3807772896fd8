//go:build linux

package node_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

const (
	// mostOwn is how long the program that waits may take from a marker until it has ended.
	mostOwn = 100 * time.Millisecond
	// mostHandOver limits the time from a marker until the next process has started, if the kubelet is no slower
	// than with any other two containers of a pod: it checks once a second which have ended.
	mostHandOver = time.Second
	// shared is the factor on that at which the test fails with TEST_FULL, and busy the one at which it fails without.
	// With so few hand-overs the slowest counts, and one that meets other load of a small machine is no defect; see the
	// line that is printed.
	shared, busy = 3, 10
	// mostHandler limits the time from the handler's installation on a node until the first pod starts that needs
	// it: the runtime restarts, and the kubelet checks and probes containers once a second each.
	mostHandler = 8 * time.Second

	nvidiaClass = "nvidia"
)

// handOver is how fast a container that waited was followed by the next one of its pod.
type handOver struct {
	pod, markers, next string
	// own is from the marker to the end of the process that waited, whole to the start of the next one.
	own, whole time.Duration
}

// handOvers returns those of all containers that were waiting when the marker was written, and the kubelet's pauses
// between other init containers, which wait for no marker, and the containers after them.
func (b *env) handOvers() (found []handOver, pauses []time.Duration) {
	b.t.Helper()
	for _, pod := range b.pods() {
		if pod.Status.Phase != corev1.PodRunning {
			continue // The labels of GPU Feature Discovery install more operands.
		}
		states := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
		for i, container := range pod.Spec.InitContainers {
			if container.RestartPolicy != nil {
				continue // It keeps running together with the containers after it.
			}
			started, ended := b.lifetime(statusOf(b.WithT, states, container.Name))
			next := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)[i+1]
			followed, _ := b.lifetime(statusOf(b.WithT, states, next.Name))
			markers, waits := waitsFor(container)
			if !waits {
				pauses = append(pauses, followed.Sub(ended))
				continue
			}
			written := b.written(markers)
			b.Expect(ended).To(BeTemporally(">=", written), "%s of %s did not wait", container.Name, pod.Name)
			if started.After(written) {
				b.t.Logf("%s of %s started when the marker was there", container.Name, pod.Name)
				continue
			}
			found = append(found, handOver{
				pod: pod.Labels["app"], markers: strings.Join(markers, ", "), next: next.Name,
				own: ended.Sub(written), whole: followed.Sub(written),
			})
		}
	}
	return found, pauses
}

// pods returns the pods of the operator's namespace.
func (b *env) pods() []corev1.Pod {
	b.t.Helper()
	pods, err := b.client.CoreV1().Pods(namespace).List(b.t.Context(), metav1.ListOptions{})
	b.Expect(err).NotTo(HaveOccurred())
	return pods.Items
}

// waitsFor returns the markers that a container of ours waits for.
func waitsFor(container corev1.Container) (markers []string, waits bool) {
	if len(container.Args) == 0 || container.Args[0] != "wait" {
		return nil, false
	}
	for _, arg := range container.Args {
		if names, ok := strings.CutPrefix(arg, "--for="); ok {
			for name := range strings.SplitSeq(names, ",") {
				markers = append(markers, name+"-ready")
			}
		}
		if arg == "--injected" {
			// The toolkit of these tests restarts the runtime.
			markers = append(markers, "runtime-ready")
		}
	}
	return markers, true
}

// awaitWaiting waits until all containers that wait for a marker run, since then, and returns their number.
func (b *env) awaitWaiting(begin time.Time) (count int) {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		count = 0
		for _, pod := range b.pods() {
			for _, container := range pod.Spec.InitContainers {
				if _, waits := waitsFor(container); !waits {
					continue
				}
				running := statusOf(g, pod.Status.InitContainerStatuses, container.Name).State.Running
				g.Expect(running).NotTo(BeNil(), "%s of %s", container.Name, pod.Name)
				// The API has whole seconds.
				g.Expect(running.StartedAt.Time).To(BeTemporally(">=", begin.Truncate(time.Second)))
				count++
			}
		}
		g.Expect(count).To(BeNumerically(">", 0))
	}, "2m", "100ms").Should(Succeed(), b.describe)
	return count
}

// written returns when the last one of the markers was written.
func (b *env) written(markers []string) time.Time {
	b.t.Helper()
	var last time.Time
	for _, marker := range markers {
		info, err := os.Stat(b.machine.Running(filepath.Join("/run/nvidia/validations", marker)))
		b.Expect(err).NotTo(HaveOccurred())
		if info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}

func statusOf(g Gomega, states []corev1.ContainerStatus, name string) corev1.ContainerStatus {
	at := slices.IndexFunc(states, func(s corev1.ContainerStatus) bool { return s.Name == name })
	g.Expect(at).To(BeNumerically(">=", 0), "the state of %s", name)
	return states[at]
}

// lifetime returns when a container started and ended, by the journal of the runtime: the API has whole seconds.
func (b *env) lifetime(status corev1.ContainerStatus) (started, ended time.Time) {
	b.t.Helper()
	id := strings.TrimPrefix(status.ContainerID, "containerd://")
	b.Expect(id).NotTo(BeEmpty(), status.Name)
	paths, err := filepath.Glob(b.machine.Running("/var/lib/containerd/*/containers/" + id + "/status"))
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(paths).To(HaveLen(1), "the runtime state of %s", status.Name)
	content, err := os.ReadFile(paths[0])
	b.Expect(err).NotTo(HaveOccurred())
	var known struct{ StartedAt, FinishedAt int64 }
	b.Expect(json.Unmarshal(content, &known)).To(Succeed())
	b.Expect(known.StartedAt).NotTo(BeZero(), status.Name)
	return time.Unix(0, known.StartedAt), time.Unix(0, known.FinishedAt)
}

// checkHandOvers prints the hand-overs and checks their limits. There must be at least this many: while the handler is
// missing, some containers may not wait yet when their marker is written.
func (b *env) checkHandOvers(least int) {
	b.t.Helper()
	found, pauses := b.handOvers()
	b.Expect(len(found)).To(BeNumerically(">=", least))
	b.Expect(pauses).NotTo(BeEmpty())
	bare := b.barePauses()
	var own, whole, kubelet []time.Duration
	b.t.Logf("%-36s %-14s %9s %9s  %s", "waiting", "marker", "ours", "whole", "next")
	for _, h := range found {
		own, whole, kubelet = append(own, h.own), append(whole, h.whole), append(kubelet, h.whole-h.own)
		b.t.Logf("%-36s %-14s %9s %9s  %s", h.pod, h.markers,
			h.own.Round(100*time.Microsecond), h.whole.Round(time.Millisecond), h.next)
	}
	b.t.Logf(
		"%d hand-overs: p95 %s; ours p95 %s, the kubelet's p95 %s. Between two containers that wait for nothing it takes "+
			"p95 %s in %d pods that are not ours, and %s between %d pairs of ours",
		len(found),
		p95(whole).Round(time.Millisecond),
		p95(own).Round(100*time.Microsecond),
		p95(kubelet).Round(time.Millisecond),
		p95(bare).Round(time.Millisecond),
		len(bare),
		p95(pauses).Round(time.Millisecond),
		len(pauses),
	)
	factor := time.Duration(busy)
	if cluster.FullCampaigns() {
		factor = shared
	}
	b.Expect(p95(own)).To(BeNumerically("<=", factor*mostOwn))
	b.Expect(p95(whole)).To(BeNumerically("<=", factor*max(mostHandOver, p95(bare), p95(pauses))))
}

// barePods is the number of pods that wait for markers on a node that joins.
const barePods = 6

// barePauses returns the kubelet's times from the end of a container to the start of the next one in pods of two that
// wait for nothing. They are created together, like the operands.
func (b *env) barePauses() []time.Duration {
	b.t.Helper()
	b.load(standIn("example.com/bare:1", "echo"))
	pods := b.client.CoreV1().Pods(metav1.NamespaceDefault)
	container := func(name string) []corev1.Container {
		return []corev1.Container{{Name: name, Image: "example.com/bare:1", Args: []string{name}}}
	}
	of := metav1.ListOptions{LabelSelector: "app=bare"}
	for range barePods {
		_, err := pods.Create(b.t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "bare-", Labels: map[string]string{"app": "bare"}},
			Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, InitContainers: container("first"), Containers: container("second"),
			},
		}, metav1.CreateOptions{})
		b.Expect(err).NotTo(HaveOccurred())
	}
	var pauses []time.Duration
	b.Eventually(func(g Gomega) {
		list, err := pods.List(b.t.Context(), of)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(list.Items).To(And(HaveLen(barePods), HaveEach(HaveField("Status.Phase", corev1.PodSucceeded))))
		pauses = nil
		for _, pod := range list.Items {
			_, ended := b.lifetime(pod.Status.InitContainerStatuses[0])
			started, _ := b.lifetime(pod.Status.ContainerStatuses[0])
			pauses = append(pauses, started.Sub(ended))
		}
	}, "60s", "100ms").Should(Succeed())
	b.Expect(pods.DeleteCollection(b.t.Context(), metav1.DeleteOptions{}, of)).To(Succeed())
	return pauses
}

// p95 returns the smallest value that 95 % of the values do not exceed; of few values, the greatest.
func p95(values []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)*95+99)/100-1]
}

// checkHandler checks that no pod which needs the handler was started before the runtime had it: the kubelet retries a
// failed one only after 10 to 15 s. Pods that wait for nothing else start immediately.
func (b *env) checkHandler() {
	b.t.Helper()
	dropIns, err := filepath.Glob(b.machine.Running("/etc/containerd/conf.d/*.toml"))
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(dropIns).To(HaveLen(1))
	info, err := os.Stat(dropIns[0])
	b.Expect(err).NotTo(HaveOccurred())
	soonest := time.Hour
	for _, pod := range b.pods() {
		class := pod.Spec.RuntimeClassName
		if class == nil || *class != nvidiaClass {
			continue
		}
		// The API has whole seconds.
		b.Expect(pod.CreationTimestamp.Time).To(BeTemporally(">=", info.ModTime().Truncate(time.Second)), pod.Name)
		started, _ := b.lifetime(statusOf(b.WithT, pod.Status.InitContainerStatuses, pod.Spec.InitContainers[0].Name))
		took := started.Sub(info.ModTime())
		b.t.Logf("%-36s started %6s after the handler was installed", pod.Labels["app"], took.Round(time.Millisecond))
		soonest = min(soonest, took)
	}
	b.Expect(soonest).To(And(BeNumerically(">", 0), BeNumerically("<=", mostHandler)))
}
