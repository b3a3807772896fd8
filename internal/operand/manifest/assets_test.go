package manifest_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
)

func TestWhatIsWrongIsAnError(t *testing.T) {
	for want, decode := range map[string]func() error{
		"there are no assets in folder none": func() error { _, err := manifest.DecodeFolder("none", nil); return err },
		"listing assets of [":                func() error { _, err := manifest.DecodeFolder("[", nil); return err },
		"asset driver/": func() error {
			_, err := manifest.DecodeFolder("driver", map[string]any{})
			return err
		},
		"there is no asset none.yaml": func() error {
			return manifest.AddContainer(&corev1.PodSpec{}, "none.yaml", nil, 0)
		},
		"asset health-agent/0400_service.yaml: ": func() error {
			return manifest.AddContainer(&corev1.PodSpec{}, "health-agent/0400_service.yaml", nil, 0)
		},
		"the pod has a different volume shared-nvidia-driver-toolkit": func() error {
			pod := &corev1.PodSpec{Volumes: []corev1.Volume{{Name: "shared-nvidia-driver-toolkit"}}}
			values := map[string]any{"DriverToolkit": map[string]any{"Image": "a", "Release": "b"}}
			return manifest.AddContainer(pod, "driver/containers/openshift-driver-toolkit-ctr.yaml",
				map[string]any{"Values": values}, 0)
		},
		"kind example.com/v1, Kind=A is not supported in assets": func() error {
			files := manifest.DecodedFiles{}
			_, err := files.Objects([]byte("apiVersion: example.com/v1\nkind: A\n"))
			return err
		},
		"invalid Yaml document separator: a": func() error {
			files := manifest.DecodedFiles{}
			_, err := files.Objects([]byte("--- a\n"))
			return err
		},
	} {
		NewWithT(t).Expect(decode()).To(MatchError(ContainSubstring(want)))
	}
}

// A folder gives the objects of all its files, with the values in them.
func TestAFolder(t *testing.T) {
	g := NewWithT(t)
	objects, err := manifest.DecodeFolder("operator-metrics", map[string]any{"Namespace": "a", "Values": map[string]any{
		"Annotations": map[string]string{"b": "c"}, "TLS": nil,
	}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(objects).To(HaveExactElements(
		And(HaveField("Kind", "Service"), HaveField("Annotations", map[string]string{"b": "c"})),
		HaveField("Kind", "ServiceMonitor"), HaveField("Kind", "PrometheusRule"),
	))
}

func TestKindsOfAssets(t *testing.T) {
	g, files := NewWithT(t), manifest.DecodedFiles{}
	objects, err := files.Objects([]byte(`# A comment alone.
---
{apiVersion: v1, kind: ConfigMap}
---
{apiVersion: v1, kind: Service}
---
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, handler: a}
---
{apiVersion: apps/v1, kind: DaemonSet}
---
{apiVersion: monitoring.coreos.com/v1, kind: ServiceMonitor}
---
{apiVersion: monitoring.coreos.com/v1, kind: PrometheusRule}
`))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(objects).To(HaveLen(len(manifest.Kinds()) + len(manifest.OptionalKinds())))
}
