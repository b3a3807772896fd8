package guides

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// mistake is a pod, and a part of what the policy says about it; empty if it accepts the pod.
type mistake struct {
	name   string
	change func(pod *corev1.Pod)
	want   string
}

// mistakes are pods that the policy is about, with a part of its message; and pods that it accepts, without.
var mistakes = []mistake{
	{"no-toleration", func(pod *corev1.Pod) { pod.Spec.Tolerations = nil },
		"pod no-toleration: container main requests 1 nvidia.com/gpu, but the pod does not tolerate the taint " +
			"nvidia.com/gpu:NoSchedule"},
	{"another-toleration", func(pod *corev1.Pod) { pod.Spec.Tolerations[0].Key = "example.com/gpu" },
		"add the toleration {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}"},
	{"two-shares", func(pod *corev1.Pod) { limit(pod, renamedGPU, "2") },
		"pod two-shares: container main requests 2 nvidia.com/gpu.shared, but a share is a turn on a GPU"},
	{"two-shares-in-an-init-container", func(pod *corev1.Pod) {
		limit(pod, renamedGPU, "2")
		pod.Spec.InitContainers, pod.Spec.Containers = pod.Spec.Containers, []corev1.Container{{Name: "rest", Image: "a"}}
	}, "container main requests 2 nvidia.com/gpu.shared"},
	{"chosen-devices", func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "all"}}
	}, "pod chosen-devices: container main sets NVIDIA_VISIBLE_DEVICES"},
	{"sound", func(*corev1.Pod) {}, ""},
	{"one-share", func(pod *corev1.Pod) { limit(pod, renamedGPU, "1") }, ""},
	{"two-gpus", func(pod *corev1.Pod) { limit(pod, wholeGPU, "2") }, ""},
	{"tolerates-all", func(pod *corev1.Pod) {
		pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}, ""},
	{"no-devices", func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "void"}}
	}, ""},
	{"another-device", func(pod *corev1.Pod) {
		pod.Spec.Tolerations = nil
		limit(pod, "nvidia.com/hostdev", "1")
	}, ""},
	{"no-gpu", func(pod *corev1.Pod) {
		pod.Spec.Tolerations, pod.Spec.Containers[0].Resources = nil, corev1.ResourceRequirements{}
	}, ""},
}

func limit(pod *corev1.Pod, name, count string) {
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceName(name): resource.MustParse(count)}
}

// gpuPodModes: in each mode the policy of config/gpu-pods finds the same mistakes, and only in pods of users.
func gpuPodModes(e *env) {
	const team = "modes"
	e.newNamespace(team)
	dir := filepath.Join(repo, "config/gpu-pods")
	e.install(dir + "/base/policy.yaml")
	users := e.newUser()
	asExpected := 0
	for _, mode := range []string{"Warn", "Audit", "Deny"} {
		e.bind(filepath.Join(dir, strings.ToLower(mode), "binding.yaml"), team, "kube-system", cluster.OperatorNamespace)
		e.Eventually(func() outcome { return users.create(team, mistakes[0].pod()) }).Should(
			matchOutcome(mode, mistakes[0].want))
		for _, m := range mistakes {
			for _, namespace := range []string{team, "kube-system", cluster.OperatorNamespace} {
				want := m.want
				if namespace != team {
					want = ""
				}
				e.Expect(users.create(namespace, m.pod())).To(matchOutcome(mode, want), "%s: %s in %s", mode, m.name, namespace)
				asExpected++
			}
		}
	}
	e.t.Logf("pods admitted as expected: %d/%d, in 3 modes", asExpected, 3*3*len(mistakes))
	e.expectFast(users, team)
}

// pod returns the pod of a mistake.
func (m mistake) pod() *corev1.Pod {
	pod := request{name: m.name, resource: wholeGPU, tolerations: []corev1.Toleration{{
		Key: wholeGPU, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
	}}}.pod()
	m.change(pod)
	return pod
}

// install creates or changes the objects of a file.
func (e *env) install(path string) {
	e.t.Helper()
	e.Expect(cluster.InstallObjects(e.t.Context(), e.cluster.SimulatorConfig, e.objectsOf(path))).To(Succeed())
}

// bind installs a binding, limited to some namespaces, as the pods of other scenarios make mistakes, too.
func (e *env) bind(path string, namespaces ...string) {
	e.t.Helper()
	binding := e.objectsOf(path)[0]
	values := make([]any, 0, len(namespaces))
	for _, name := range namespaces {
		values = append(values, name)
	}
	e.Expect(unstructured.SetNestedSlice(binding.Object, []any{map[string]any{
		"key": corev1.LabelMetadataName, "operator": "In", "values": values,
	}}, "spec", "matchResources", "namespaceSelector", "matchExpressions")).To(Succeed())
	e.Expect(cluster.InstallObjects(e.t.Context(), e.cluster.SimulatorConfig, []*unstructured.Unstructured{binding})).
		To(Succeed())
}

// outcome is what a client and the audit log see of the creation of a pod.
type outcome struct {
	Warnings []string
	Err      error
	Audit    string
}

// user creates pods as users do, whose requests are in the audit log.
type user struct {
	*env
	client   kubernetes.Interface
	warnings []string
}

// HandleWarningHeader keeps the warnings of the API server.
func (u *user) HandleWarningHeader(_ int, _, text string) { u.warnings = append(u.warnings, text) }

func (e *env) newUser() *user {
	e.t.Helper()
	u := &user{env: e}
	cfg := rest.CopyConfig(e.cluster.Config)
	cfg.WarningHandler = u
	var err error
	u.client, err = kubernetes.NewForConfig(cfg)
	e.Expect(err).NotTo(HaveOccurred())
	return u
}

// dryRun is validated and audited like a creation.
var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// create creates a pod in a dry run, and returns what comes of it.
func (u *user) create(namespace string, pod *corev1.Pod) outcome {
	u.t.Helper()
	mark, err := u.cluster.Mark()
	u.Expect(err).NotTo(HaveOccurred())
	u.warnings = nil
	pod.Namespace = namespace
	_, failed := u.client.CoreV1().Pods(namespace).Create(u.t.Context(), pod, dryRun)
	return outcome{Warnings: u.warnings, Err: failed, Audit: u.audited(int64(mark), namespace, pod.Name)}
}

// audited returns what the audit log says after a position of it about failed validations of a pod.
func (u *user) audited(from int64, namespace, name string) string {
	u.t.Helper()
	file, err := os.Open(u.cluster.AuditLog)
	u.Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	_, err = file.Seek(from, io.SeekStart)
	u.Expect(err).NotTo(HaveOccurred())
	decoder := json.NewDecoder(file)
	for {
		event := struct {
			Verb      string
			ObjectRef struct{ Resource, Namespace, Name string }
			// What admission adds.
			Annotations map[string]string
		}{}
		if err := decoder.Decode(&event); err != nil {
			// The last line may not be complete yet.
			return ""
		}
		found := event.Annotations["validation.policy.admission.k8s.io/validation_failure"]
		if at := event.ObjectRef; event.Verb == "create" && at.Namespace == namespace && at.Name == name && found != "" {
			return found
		}
	}
}

// expectFast creates many pods, and prints how much time the policy costs for each, as the API server measures it.
func (e *env) expectFast(u *user, team string) {
	count, workers := 200, 8
	if cluster.FullCampaigns() {
		count = 1000
	}
	before := u.costs()
	sound := mistake{name: "sound", change: func(*corev1.Pod) {}}
	begin := time.Now()
	group, ctx := errgroup.WithContext(e.t.Context())
	group.SetLimit(workers)
	for range count {
		group.Go(func() error {
			pod := sound.pod()
			pod.Namespace = team
			_, err := u.client.CoreV1().Pods(team).Create(ctx, pod, dryRun)
			return err
		})
	}
	e.Expect(group.Wait()).To(Succeed())
	took := time.Since(begin)
	after := u.costs()
	checks := after.count - before.count
	e.Expect(checks).To(BeNumerically(">=", count))
	each := time.Duration((after.seconds - before.seconds) / checks * float64(time.Second))
	e.t.Logf("%d pods created in %s, of which all admission policies take %s each",
		count, took.Round(time.Millisecond), each)
	// A busy machine takes longer: only the complete run, which nothing disturbs, judges the time.
	if cluster.FullCampaigns() {
		e.Expect(each).To(BeNumerically("<", 10*time.Millisecond))
	}
}

// cost is how often and how long the API server has evaluated admission policies for new objects. It does not count the
// pods that a single policy accepts.
type cost struct{ count, seconds float64 }

func (u *user) costs() cost {
	u.t.Helper()
	text, err := u.client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(u.t.Context())
	u.Expect(err).NotTo(HaveOccurred())
	found := cost{}
	for line := range strings.Lines(string(text)) {
		const series = "apiserver_admission_controller_admission_duration_seconds_"
		part, isSeries := strings.CutPrefix(line, series)
		if !isSeries || !strings.Contains(line, `name="ValidatingAdmissionPolicy",operation="CREATE"`) {
			continue
		}
		value, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:len(line)-1], 64)
		u.Expect(err).NotTo(HaveOccurred())
		switch {
		case strings.HasPrefix(part, "count"):
			found.count += value
		case strings.HasPrefix(part, "sum"):
			found.seconds += value
		}
	}
	return found
}

// matchOutcome expects that a message, unless it is empty, is where a mode shows it, and nowhere else.
func matchOutcome(mode, message string) OmegaMatcher {
	warnings, err, audit := BeEmpty(), BeNil(), BeEmpty()
	if message != "" {
		switch mode {
		case "Warn":
			warnings = ContainElement(ContainSubstring(message))
		case "Audit":
			audit = ContainSubstring(message)
		case "Deny":
			err = And(MatchError(ContainSubstring(message)), Satisfy(apierrors.IsForbidden))
		}
	}
	return And(HaveField("Warnings", warnings), HaveField("Err", err), HaveField("Audit", audit))
}
