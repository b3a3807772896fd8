package upgrades

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// TestOnlyGPUPodsAreEvicted: of 30 pods without a GPU and 2 with one, an upgrade evicts the latter.
func TestOnlyGPUPodsAreEvicted(t *testing.T) {
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 1, policy: budget(1, "1")})
	e.deploy(workload{name: "web", node: nodeName(0)}, 30)
	e.deploy(workload{name: "training", node: nodeName(0), gpus: "1"}, 2)
	web, training := e.running("web"), e.running("training")
	mark := e.mark()
	e.install(after)
	e.awaitUpgraded(after, nodeName(0))
	e.Expect(e.evictions(mark)).To(HaveLen(2), "only pods with GPUs")
	e.Expect(e.deletions(mark, "users")).To(BeEmpty(), "pods of users are evicted, not deleted")
	e.Expect(e.running("web")).To(Equal(web), "pods without a GPU keep running")
	e.awaitRunning("training", 2)
	e.Expect(e.running("training")).NotTo(ContainElements(training), "the evicted pods were replaced")
	e.writesNothing()
}

// obstacle is a workload that delays or blocks the upgrade of its node.
type obstacle struct {
	name string
	// place puts it on the node.
	place func(e *env, node string)
	// words are in the status of the node while it is blocked or slow; none if that is too short.
	words []string
	// clear removes the obstacle.
	clear func(e *env, node string)
}

func obstacles() []obstacle {
	protected := func(e *env, node string) {
		e.deploy(workload{name: "protected-" + node, node: node, gpus: "1"}, 1)
		e.protect("first-"+node, "protected-"+node)
	}
	return []obstacle{
		{
			name: "a PDB that allows no disruption", place: protected,
			words: []string{"UpgradeBlocked", "PDB default/first-node-0 allows 0 disruptions", "default/protected-node-0"},
			clear: func(e *env, node string) { e.remove(budgetOf("first-" + node)) },
		},
		{
			name: "two PDBs on a pod",
			place: func(e *env, node string) {
				protected(e, node)
				e.protect("second-"+node, "protected-"+node)
			},
			words: []string{"UpgradeBlocked", "default/protected-node-1"},
			clear: func(e *env, node string) {
				e.remove(budgetOf("first-" + node))
				e.remove(budgetOf("second-" + node))
			},
		},
		{
			name:  "a pod without a controller",
			place: func(e *env, node string) { e.run(workload{name: "bare-" + node, node: node, gpus: "1"}) },
			words: []string{"UpgradeBlocked", "default/bare-node-2", "force"},
			clear: func(e *env, node string) { e.remove(podOf("bare-" + node)) },
		},
		{
			name: "a pod with an emptyDir",
			place: func(e *env, node string) {
				e.deploy(workload{name: "scratch-" + node, node: node, gpus: "1", change: func(pod *corev1.Pod) {
					pod.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{
						EmptyDir: &corev1.EmptyDirVolumeSource{},
					}}}
				}}, 1)
			},
			words: []string{"UpgradeBlocked", "default/scratch-node-3", "deleteEmptyDir"},
			clear: func(e *env, _ string) {
				e.upgradePolicy(func(u *v1.DriverUpgradePolicySpec) {
					u.PodDeletion = &v1.PodDeletionSpec{DeleteEmptyDir: pointer(true)}
				})
			},
		},
		{
			name: "a DaemonSet's pod with a GPU",
			place: func(e *env, node string) {
				e.deployEverywhere(workload{name: "agent-" + node, node: node, gpus: "1"})
			},
			words: []string{"UpgradeBlocked", "default/agent-node-4", "its DaemonSet starts it again"},
			clear: func(e *env, node string) { e.remove(daemonSetOf("agent-" + node)) },
		},
		{
			name: "a pod that ignores SIGTERM",
			place: func(e *env, node string) {
				e.deploy(workload{name: "deaf-" + node, node: node, gpus: "1", change: ignoringTerm(15)}, 1)
			},
			words: []string{"UpgradeEvicting", "default/deaf-node-5"},
		},
		{
			name: "a pod with a finalizer",
			place: func(e *env, node string) {
				e.deploy(workload{name: "kept-" + node, node: node, gpus: "1"}, 1)
				for _, name := range e.podNames("kept-" + node) {
					e.finalizers(name, "example.com/keep")
				}
			},
		},
		{
			name: "a job that is waited for",
			place: func(e *env, node string) {
				e.run(workload{name: "job-" + node, node: node, change: labelled("wait", "true")})
			},
			words: []string{"UpgradeWaitingForJobs", "default/job-node-7"},
			clear: func(e *env, node string) { e.remove(podOf("job-" + node)) },
		},
		{
			name: "a static pod with a GPU",
			place: func(e *env, node string) {
				e.run(workload{name: "static-" + node, node: node, gpus: "1", change: mirrors(node)})
			},
			words: []string{"UpgradeBlocked", "default/static-node-8", "static pod"},
			clear: func(e *env, node string) { e.remove(podOf("static-" + node)) },
		},
	}
}

// mirrors makes a pod the mirror of a static pod of the node.
func mirrors(node string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Annotations[corev1.MirrorPodAnnotationKey] = "digest"
		pod.Spec.NodeName = node
	}
}

// TestObstacles: an obstacle on a node is named, the other nodes go on, and the node does so once it is gone.
func TestObstacles(t *testing.T) {
	t.Parallel()
	all := obstacles()
	free := nodeName(len(all))
	e := newEnv(t, envOptions{nodes: len(all) + 1, policy: func(u *v1.DriverUpgradePolicySpec) {
		budget(0, "100%")(u)
		u.WaitForCompletion = &v1.WaitForCompletionSpec{PodSelector: "wait=true"}
	}})
	for i, o := range all {
		o.place(e, nodeName(i))
	}
	mark := e.mark()
	e.install(after)
	for i, o := range all {
		e.awaitProgress(nodeName(i), o.words...)
	}
	e.awaitUpgraded(after, free)
	for i, o := range all {
		t.Run(o.name, func(t *testing.T) {
			e := e.in(t)
			if o.clear != nil {
				e.Expect(e.watch.driver(nodeName(i)).runs(before)).To(BeTrue(), "the driver stays while a pod uses it")
				o.clear(e, nodeName(i))
			}
			e.awaitUpgraded(after, nodeName(i))
		})
	}
	e.Expect(e.deletions(mark, "users")).To(BeEmpty(), "pods of users are evicted, not deleted")
	for _, name := range e.podNames("kept-node-6") {
		e.finalizers(name)
	}
	e.writesNothing()
}

// podNames returns the pods of a workload.
func (e *env) podNames(app string) []string {
	e.t.Helper()
	var names []string
	for _, pod := range e.podsOf(tenant, app) {
		names = append(names, pod.Name)
	}
	return names
}

// finalizers sets those of a pod.
func (e *env) finalizers(name string, finalizers ...string) {
	e.t.Helper()
	pod := podOf(name)
	e.Expect(e.client.Get(e.t.Context(), client.ObjectKeyFromObject(pod), pod)).To(Succeed())
	original := pod.DeepCopy()
	pod.Finalizers = finalizers
	e.Expect(e.client.Patch(e.t.Context(), pod, client.MergeFrom(original))).To(Succeed())
}

func podOf(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name}}
}
