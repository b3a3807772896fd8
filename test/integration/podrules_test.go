package integration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/kube/podrules"
	"github.com/clusterpolicy/gpu-operator/test/chance"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

const (
	randomPods  = 3000
	sampledPods = 300
)

// TestPodRulesAgreeWithTheAPIServer: the API server accepts each DaemonSet in which the rules find nothing, and refuses
// each other one; the newest and the oldest supported release.
func TestPodRulesAgreeWithTheAPIServer(t *testing.T) {
	t.Parallel()
	for _, version := range cluster.Releases() {
		t.Run(version, func(t *testing.T) {
			if version == cluster.Oldest {
				cluster.SkipInSample(t)
			}
			t.Parallel()
			live := bareClient(t, version)
			cases := sampledPods
			if cluster.FullCampaigns() {
				cases = randomPods
			}
			counts := map[bool]int{}
			first := uint64(chance.Of(t, "pod rules").Uint32())
			for seed := first; seed < first+uint64(cases); seed++ {
				parts := randomParts(rand.New(rand.NewPCG(seed, 0)))
				accepted, disagree := compare(t, live, version, parts)
				if disagree != "" {
					t.Errorf("seed %d: %s", seed, disagree)
					continue
				}
				counts[accepted]++
			}
			t.Logf("DaemonSets on which the rules and %s agree: %d/%d, of which %d are refused", version,
				counts[true]+counts[false], cases, counts[false])
			// Nearly a tenth is accepted.
			NewWithT(t).Expect(min(counts[true], counts[false])).To(BeNumerically(">", cases/30))
		})
	}
}

// compare reports whether the API server accepts a DaemonSet with the parts, and how the rules disagree.
func compare(t *testing.T, live client.Client, version string, parts podParts) (accepted bool, disagree string) {
	t.Helper()
	found := parts.problems()
	err := live.Create(t.Context(), parts.daemonSet(), client.DryRunAll)
	switch {
	case err != nil && !apierrors.IsInvalid(err):
		t.Fatal(err)
	case len(found) == 0 && err != nil:
		return false, "the rules find nothing, and the API server refuses it: " + err.Error()
	case len(found) > 0 && err == nil && !onlyKubeletsRefuse(found, version):
		return true, fmt.Sprintf("the API server accepts what the rules refuse: %v", found)
	}
	return err == nil, ""
}

// bareClient starts an API server of a release, and returns a client of it.
func bareClient(t *testing.T, version string) client.Client {
	t.Helper()
	return cluster.NewClient(t, cluster.StartFor(t, cluster.Options{Version: version, Bare: true}).Config)
}

// onlyKubeletsRefuse reports whether API servers of a release accept what is found: kubelets refuse root where it is
// excluded, options for Windows are checked more strictly than there, and the oldest release does not have all fields.
func onlyKubeletsRefuse(found []podrules.Problem, version string) bool {
	for _, problem := range found {
		switch {
		case problem.Below == ".runAsUser" && strings.Contains(problem.Message, "runAsNonRoot"):
		case version == cluster.Oldest && (problem.Below == ".seLinuxChangePolicy" ||
			problem.Below == ".supplementalGroupsPolicy"):
		default:
			return false
		}
	}
	return true
}

// podParts are the parts of pods that the API takes from users.
type podParts struct {
	v1.DaemonSetsSpec
	Container v1.ContainerSpec
	Probes    *v1.DriverSpec
}

// problems returns what the rules find in the parts.
func (p podParts) problems() []podrules.Problem {
	return slices.Concat(podrules.Check(p.DaemonSetsSpec, "spec.daemonsets"), podrules.Check(p.Container, "spec.gfd"),
		podrules.Check(p.Probes, "spec.driver"))
}

// daemonSet returns a DaemonSet with the parts, as the operator renders them.
func (p podParts) daemonSet() *appsv1.DaemonSet {
	labels := map[string]string{"app": "parts"}
	metadata := metav1.ObjectMeta{
		Namespace: corev1.NamespaceDefault, Name: "parts", Labels: p.Labels.Strings(), Annotations: p.Annotations.Strings(),
	}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{"app": "parts"}, Annotations: p.Annotations.Strings(),
	}}
	for key, value := range p.Labels.Strings() {
		template.Labels[key] = value
	}
	container := corev1.Container{Name: "a", Image: "a"}
	if resources := p.Container.Resources; resources != nil {
		container.Resources = corev1.ResourceRequirements{Limits: resources.Limits, Requests: resources.Requests}
	}
	for _, variable := range p.Container.Env {
		container.Env = append(container.Env, corev1.EnvVar{Name: variable.Name, Value: variable.Value})
	}
	container.StartupProbe, container.ReadinessProbe = probe(p.Probes.StartupProbe), probe(p.Probes.ReadinessProbe)
	template.Spec = corev1.PodSpec{
		Containers: []corev1.Container{container}, Tolerations: p.Tolerations, SecurityContext: p.PodSecurityContext,
		NodeSelector: p.NodeSelector.Strings(), PriorityClassName: p.PriorityClassName,
	}
	return &appsv1.DaemonSet{
		ObjectMeta: metadata,
		Spec:       appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	}
}

func probe(spec *v1.ProbeSpec) *corev1.Probe {
	if spec == nil {
		return nil
	}
	return &corev1.Probe{
		ProbeHandler:     corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}},
		SuccessThreshold: spec.SuccessThreshold,
	}
}
