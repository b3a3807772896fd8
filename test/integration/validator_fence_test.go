package integration

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	validatorAccount = "nvidia-operator-validator"
	testPodApp       = "nvidia-device-plugin-validator"
)

// validatorIsLimited: a pod of the validator may only create and delete the test pods of its own node.
func (e *env) validatorIsLimited(gpuNode string) {
	f := newFence(e)
	made := f.check(gpuNode)
	e.t.Run("create", func(t *testing.T) { f.in(t).creates(made) })
	e.t.Run("delete", func(t *testing.T) { f.in(t).deletes() })
	e.t.Run("all else", func(t *testing.T) { f.in(t).changes() })
}

// fence is an env with the clients of a validator pod.
type fence struct {
	*env
	own, other string
	// validator is the pod, token its token, bound and admin are clients with that token and with all permissions.
	validator    *corev1.Pod
	token        string
	bound, admin kubernetes.Interface
}

func (f *fence) in(t *testing.T) *fence {
	view := *f
	view.env = f.env.in(t)
	return &view
}

// newFence returns once the admission policy is enforced, and grants the validator all permissions for pods, so that
// only the policy limits it.
func newFence(e *env) *fence {
	e.t.Helper()
	f := &fence{env: e, admin: kubernetes.NewForConfigOrDie(e.cluster.Config)}
	f.own, f.other = e.twoNodes()
	f.validator = e.podFor(validatorAccount, f.own)
	f.bound, f.token = e.podBound(validatorAccount, f.validator)
	for _, name := range []string{f.own, f.other} {
		_, err := f.admin.CoreV1().Nodes().Patch(e.t.Context(), name, types.MergePatchType,
			[]byte(`{"status":{"allocatable":{"nvidia.com/gpu":"8"},"capacity":{"nvidia.com/gpu":"8"}}}`),
			metav1.PatchOptions{}, "status")
		e.Expect(err).NotTo(HaveOccurred())
	}
	all := metav1.ObjectMeta{Namespace: namespace, Name: "all"}
	e.create(&rbacv1.Role{
		ObjectMeta: all,
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"*"}, Verbs: []string{"*"}}},
	})
	e.create(&rbacv1.RoleBinding{
		ObjectMeta: all, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: all.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: validatorAccount}},
	})
	e.Eventually(func() error { return f.create(f.bound, leftover(f.own, "1")) }).
		WithPolling(100 * time.Millisecond).Should(forbidden("the validator may"))
	return f
}

// typeChecked requires that the control plane finds no type errors in the policies: otherwise an error in a rarely
// evaluated expression would refuse valid requests.
func (e *env) typeChecked() {
	e.t.Helper()
	admin := kubernetes.NewForConfigOrDie(e.cluster.Config)
	shipped, err := admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(e.t.Context(),
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=gpu-operator"})
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(shipped.Items).NotTo(BeEmpty())
	for i := range shipped.Items {
		e.Eventually(func(g Gomega) {
			policy, err := admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(e.t.Context(),
				shipped.Items[i].Name, metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(policy.Status.ObservedGeneration).To(Equal(policy.Generation))
			g.Expect(policy.Status.TypeChecking).To(HaveValue(HaveField("ExpressionWarnings", BeEmpty())))
		}).Should(Succeed())
	}
}

// check runs gpu-node's check with the validator's token, and returns the pod that it created. The pod of an earlier
// check has all GPUs and does not terminate at first, which does not mean that users have them.
func (f *fence) check(gpuNode string) *corev1.Pod {
	f.t.Helper()
	earlier, elsewhere := leftover(f.own, "8"), leftover(f.other, "1000")
	earlier.Spec.NodeName, earlier.Finalizers = f.own, []string{"example.com/hangs"}
	f.env.create(earlier)
	f.env.create(elsewhere)
	followed := f.followWorkloads()
	process, log, markers := f.start(gpuNode)
	f.Eventually(log).WithTimeout(time.Minute).
		Should(ContainSubstring("the earlier test pod on node " + f.own + " has not ended 20s after its deletion"))
	f.Expect(filepath.Join(markers, labels.MarkerPlugin.File())).NotTo(BeAnExistingFile(), log)
	f.Expect(followed.created()).To(BeEmpty())

	_, err := f.admin.CoreV1().Pods(namespace).Patch(f.t.Context(), earlier.Name, types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	f.Expect(err).NotTo(HaveOccurred())
	f.Eventually(followed.last).WithTimeout(time.Minute).WithPolling(50*time.Millisecond).Should(
		HaveField("Spec.NodeName", f.own), log)
	made := followed.created()[0]
	f.Expect(f.workloadNames()).To(ConsistOf(made.Name, elsewhere.Name))

	finish := `{"metadata":{"annotations":{"` + simulator.ExitAfterAnnotation + `":"1ms"}}}`
	_, err = f.admin.CoreV1().Pods(namespace).Patch(f.t.Context(), made.Name, types.MergePatchType, []byte(finish),
		metav1.PatchOptions{})
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(process.Wait()).To(Succeed(), log)
	f.Expect(filepath.Join(markers, labels.MarkerPlugin.File())).To(BeAnExistingFile(), log)
	f.Eventually(f.workloadNames).WithTimeout(time.Minute).Should(ConsistOf(elsewhere.Name),
		"it deletes the pod that it created")
	return made
}

// start starts gpu-node as in the pod of the validator. log returns its output.
func (f *fence) start(gpuNode string) (process *exec.Cmd, log func() string, markers string) {
	f.t.Helper()
	account, markers := f.t.TempDir(), f.t.TempDir()
	for name, content := range map[string][]byte{
		"token": []byte(f.token), "namespace": []byte(namespace), "ca.crt": f.cluster.Config.CAData,
	} {
		f.Expect(os.WriteFile(filepath.Join(account, name), content, 0o600)).To(Succeed())
	}
	server, err := url.Parse(f.cluster.Config.Host)
	f.Expect(err).NotTo(HaveOccurred())
	output, err := os.Create(filepath.Join(account, "log"))
	f.Expect(err).NotTo(HaveOccurred())
	defer output.Close()
	process = exec.CommandContext(f.t.Context(), gpuNode, "validate", "plugin", "--with-workload", "--timeout=3m",
		"--interval=1s",
		"--service-account-dir="+account, "--dir="+markers)
	process.Cancel = func() error { return process.Process.Signal(syscall.SIGTERM) }
	process.Stdout, process.Stderr = output, output
	process.Env = []string{
		"KUBERNETES_SERVICE_HOST=" + server.Hostname(), "KUBERNETES_SERVICE_PORT=" + server.Port(),
		"NODE_NAME=" + f.own, "POD_NAME=" + f.validator.Name, "POD_UID=" + string(f.validator.UID),
		"VALIDATOR_IMAGE=example.com/operator:1", "VALIDATOR_IMAGE_PULL_SECRETS=a,b",
	}
	f.Expect(process.Start()).To(Succeed())
	log = func() string {
		content, err := os.ReadFile(output.Name())
		f.Expect(err).NotTo(HaveOccurred())
		return string(content)
	}
	return process, log, markers
}

// creates tries to create gpu-node's pod, unchanged and with each change.
func (f *fence) creates(made *corev1.Pod) {
	f.t.Run("allowed: unchanged", func(t *testing.T) {
		f.in(t).Expect(f.create(f.bound, again(made))).To(Succeed())
	})
	for name, variation := range variations(f.own, f.other) {
		f.t.Run("refused: "+name, func(t *testing.T) {
			pod := again(made)
			variation.change(pod)
			f.in(t).Expect(f.create(f.bound, pod)).To(forbidden(variation.refusal))
		})
	}
	f.t.Run("refused: with the token of another pod", func(t *testing.T) {
		view := f.in(t)
		next := view.podFor(validatorAccount, f.other)
		bound, _ := view.podBound(validatorAccount, next)
		pod := again(made)
		view.Expect(f.create(bound, pod)).To(forbidden("named after its own node: " + testPodName(f.other)))
		pod.Name = testPodName(f.other)
		view.Expect(f.create(bound, pod)).To(forbidden("must require " + f.other + " by metadata.name"))
		pod.Spec.Affinity = onNode(f.other)
		view.Expect(f.create(bound, pod)).To(forbidden("its own pod as the only owner, which is " + next.Name))
	})
	f.t.Run("refused: with a token without a pod", func(t *testing.T) {
		unbound, err := f.cluster.ServiceAccountConfig(t.Context(), namespace, validatorAccount)
		f.in(t).Expect(err).NotTo(HaveOccurred())
		f.in(t).Expect(f.create(kubernetes.NewForConfigOrDie(unbound), again(made))).To(
			forbidden("only with a token that names its own pod and its node"))
	})
	f.t.Run("the name of a node with a long name", func(t *testing.T) { f.in(t).longName(made) })
	f.t.Run("other accounts are not limited", func(t *testing.T) {
		pod := again(made)
		pod.Name, pod.Labels, pod.OwnerReferences, pod.Spec.HostNetwork, pod.Spec.Affinity = "any", nil, nil, true, nil
		f.in(t).Expect(f.create(f.admin, pod)).To(Succeed())
	})
}

// longName tries names for a node whose name is too long for the pod's name; gpu-node uses a hash.
func (f *fence) longName(made *corev1.Pod) {
	node := strings.Repeat("n", 120)
	f.env.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
	validator := f.podFor(validatorAccount, node)
	bound, _ := f.podBound(validatorAccount, validator)
	pod := again(made)
	pod.Spec.Affinity = onNode(node)
	pod.OwnerReferences[0].Name, pod.OwnerReferences[0].UID = validator.Name, validator.UID
	for name, right := range map[string]bool{
		node[:84] + "0123456789abcdef": true, node[:84] + "0123456789abcdeg": false, node[:84] + "0123456789abcdef0": false,
		strings.Repeat("o", 84) + "0123456789abcdef": false, node: false, f.own: false,
	} {
		verdict := Succeed()
		if !right {
			verdict = forbidden("named after its own node: " + testPodName(node[:84]))
		}
		pod.Name = testPodName(name)
		f.Expect(f.create(bound, pod)).To(verdict, name)
	}
}

// deletes tries to delete pods that the validator has and has not created.
func (f *fence) deletes() {
	unlabelled := func(pod *corev1.Pod) *corev1.Pod { pod.Labels = nil; return pod }
	at := func(node string, pod *corev1.Pod) *corev1.Pod { pod.Spec.NodeName = node; return pod }
	anywhere := func(pod *corev1.Pod) *corev1.Pod { pod.Spec.Affinity = nil; return pod }
	named := func(name string, pod *corev1.Pod) *corev1.Pod { pod.Name = name; return pod }
	for name, test := range map[string]struct {
		pod     *corev1.Pod
		refusal string
	}{
		"at its node":             {pod: at(f.own, leftover(f.own, "1"))},
		"that waits for its node": {pod: leftover(f.own, "1000")},
		"of another app": {
			pod: unlabelled(at(f.own, leftover(f.own, "1"))), refusal: "with the label app=" + testPodApp,
		},
		"of itself": {pod: f.validator, refusal: "with the label app=" + testPodApp},
		"of another name": {
			pod: named("other", at(f.own, leftover(f.own, "1"))), refusal: "named after its own node: " + testPodName(f.own),
		},
		"at another node": {
			pod: named(testPodName(f.own),
				at(f.other, leftover(f.other, "1"))), refusal: "which is " + f.own + ", not " + f.other,
		},
		"that was bound elsewhere": {
			pod: at(f.other, leftover(f.own, "1")), refusal: "which is " + f.own + ", not " + f.other,
		},
		"that waits for another": {
			pod: named(testPodName(f.own), leftover(f.other, "1000")), refusal: "must require " + f.own,
		},
		"that waits for any node": {pod: anywhere(leftover(f.own, "1000")), refusal: "must require " + f.own},
	} {
		f.t.Run(name, func(t *testing.T) {
			view, verdict := f.in(t), Succeed()
			if test.refusal != "" {
				verdict = forbidden(test.refusal)
			}
			if test.pod != f.validator {
				defer view.vanish(test.pod) // The next one has the same name.
			}
			// The simulated kubelet deletes pods by their names, so that it may delete this one for the one before.
			view.Eventually(func() error {
				if test.pod != f.validator {
					err := view.env.client.Create(t.Context(), test.pod.DeepCopy())
					if err != nil && !apierrors.IsAlreadyExists(err) {
						return err
					}
				}
				return f.bound.CoreV1().Pods(namespace).Delete(t.Context(), test.pod.Name, metav1.DeleteOptions{})
			}).Should(verdict)
		})
	}
}

// vanish removes the pod.
func (f *fence) vanish(pod *corev1.Pod) {
	err := f.admin.CoreV1().Pods(namespace).Delete(f.t.Context(), pod.Name,
		metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	f.Expect(client.IgnoreNotFound(err)).To(Succeed())
}

// changes tries what the validator never does, on a pod like its own with an unused name.
func (f *fence) changes() {
	pod := leftover(f.own, "1000")
	pod.Name = "target"
	f.env.create(pod)
	pods := f.bound.CoreV1().Pods(namespace)
	ctx := f.t.Context()
	for what, try := range map[string]func() error{
		"UPDATE pods": func() error {
			_, err := pods.Patch(ctx, pod.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`),
				metav1.PatchOptions{})
			return err
		},
		"UPDATE pods/ephemeralcontainers": func() error {
			with := pod.DeepCopy()
			with.ResourceVersion = ""
			with.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
				Name: "debug", Image: "example.com/x:1", ImagePullPolicy: corev1.PullAlways,
				TerminationMessagePolicy: corev1.TerminationMessageReadFile,
			}}}
			_, err := pods.UpdateEphemeralContainers(ctx, pod.Name, with, metav1.UpdateOptions{})
			return err
		},
		"CREATE pods/eviction": func() error {
			return pods.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: f.validator.Name}})
		},
		"CONNECT pods/exec": func() error {
			return f.bound.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Name(f.validator.Name).
				SubResource("exec").
				Param("command", "true").Param("stdout", "true").Do(ctx).Error()
		},
	} {
		f.t.Run("refused: "+what, func(t *testing.T) {
			f.in(t).Expect(try()).To(forbidden("the validator may only create and delete pods, not " + what))
		})
	}
	f.t.Run("reads are not limited", func(t *testing.T) {
		_, err := pods.List(ctx, metav1.ListOptions{})
		f.in(t).Expect(err).NotTo(HaveOccurred())
	})
}

// create tries to create a pod.
func (f *fence) create(as kubernetes.Interface, pod *corev1.Pod) error {
	_, err := as.CoreV1().Pods(namespace).Create(f.t.Context(), pod,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func (e *env) workloadNames() []string {
	e.t.Helper()
	pods := &corev1.PodList{}
	e.Expect(e.client.List(e.t.Context(), pods, client.InNamespace(namespace),
		client.MatchingLabels{"app": testPodApp})).To(Succeed())
	var names []string
	for _, pod := range pods.Items {
		names = append(names, pod.Name)
	}
	return names
}
