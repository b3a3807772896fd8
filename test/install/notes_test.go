package install

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// The notes warn of a configuration of the device plugin without a default where the operator finds no key, whether the
// chart creates the ConfigMap or it exists. If it does not exist yet, they describe what its keys decide.
func TestTheNotesResolveTheDefaultConfigurationAsTheOperator(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, 0)
	e.Expect(e.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
	definition := find(kustomize(t), "CustomResourceDefinition", "clusterpolicies.nvidia.com")
	e.Expect(cluster.InstallObjects(t.Context(), e.cluster.Config, []*unstructured.Unstructured{definition})).To(Succeed())
	const note = "devicePlugin.config.default is not set"
	notes := func(flags ...string) string {
		return e.helm(append([]string{"install", release, chart, "--namespace", namespace, "--dry-run=server"}, flags...)...)
	}
	e.Expect(notes(set("devicePlugin.config.name=missing")...)).To(
		ContainSubstring(note + ": the operator uses the only key of ConfigMap missing, or default or any."))
	for name, keys := range map[string][]string{
		"one": {"a"}, "two": {"a", "b"}, "with-default": {"a", "default"}, "with-any": {"a", "b", "any"},
	} {
		data, create := map[string]string{}, set("devicePlugin.config.create=true devicePlugin.config.name=created-"+name)
		for _, key := range keys {
			data[key] = "version: v1"
			create = append(create, set("devicePlugin.config.data."+key+".version=v1")...)
		}
		e.Expect(e.client.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Data: data,
		})).To(Succeed())
		_, problem := operand.Input{
			Spec: effective.Of(v1.ClusterPolicySpec{
				DevicePlugin: &v1.DevicePluginSpec{Config: &v1.DevicePluginConfigSpec{Name: v1.ObjectName(name)}},
			}),
			Contents: map[operand.Reference]operand.Content{{Kind: operand.ConfigMap, Name: name}: {Keys: keys}},
		}.DefaultPluginConfig()
		for _, printed := range []string{notes(create...), notes(set("devicePlugin.config.name=" + name)...)} {
			e.Expect(strings.Contains(printed, note)).To(Equal(problem != ""), "%s: %s", name, printed)
		}
	}
	e.Expect(notes(set("devicePlugin.config.name=two devicePlugin.config.default=b")...)).NotTo(ContainSubstring(note))
}
