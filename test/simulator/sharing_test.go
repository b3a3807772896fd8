package simulator

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	sliced = "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"
	multi  = "version: v1\nsharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 10}]}}"
)

func TestPluginConfigurations(t *testing.T) {
	for name, test := range map[string]struct{ text, failure string }{
		"nothing is shared":         {text: "version: v1"},
		"a key that nobody knows":   {text: "version: v1\nsharing: {mig: {}}\nother: 1"},
		"time-slicing":              {text: sliced},
		"no version":                {text: "sharing: {}"},
		"another version":           {text: "version: v2", failure: "unknown version"},
		"not YAML":                  {text: "version: [", failure: "unmarshal error"},
		"replicas in a wrong place": {text: "version: v1\nsharing: {timeSlicing: {replicas: 4}}", failure: "no resources"},
		"a GPU shared by one":       {text: strings.Replace(sliced, "4", "1", 1), failure: "must be >= 2"},
		"a resource without a name": {
			text: strings.Replace(sliced, "name: nvidia.com/gpu, ", "", 1), failure: "must be >= 2",
		},
		"one of two strategies without resources": {
			text: sliced[:len(sliced)-1] + ", mps: {}}", failure: "no resources",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := readPluginConfig(test.text)
			if test.failure == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(test.failure)))
		})
	}
}

// NVIDIA's device plugin shares by MPS if its configuration has both.
func TestMPSHasPrecedence(t *testing.T) {
	g := NewWithT(t)
	config, err := readPluginConfig(sliced[:len(sliced)-1] + ", mps: {resources: [{name: nvidia.com/gpu, replicas: 10}]}}")
	g.Expect(err).NotTo(HaveOccurred())
	shared, strategy := config.shared()
	g.Expect(strategy).To(Equal("mps"))
	g.Expect(shared.Resources[0].Replicas).To(Equal(int64(10)))
}

// sharingNode is a node with four H100 and a device plugin of this configuration and strategy.
func sharingNode(t *testing.T, text, strategy string, partitions ...map[string]int) *node {
	t.Helper()
	config, err := readPluginConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{
		gpus: 4, model: ModelH100, driverOnHost: true, object: &corev1.Node{}, partitions: make([]partition, 4),
		advertised: resources{}, pods: map[types.UID]*pod{},
	}
	for i, devices := range partitions {
		n.partitions[i] = partition{enabled: devices != nil, devices: devices}
	}
	for _, app := range []string{appPlugin, appMPS} {
		n.pods[types.UID(app)] = &pod{
			app: app, object: &corev1.Pod{}, configured: &configured{config: config},
			mains: []*container{{ready: true, spec: corev1.Container{
				Name: "main", Env: []corev1.EnvVar{{Name: "MIG_STRATEGY", Value: strategy}},
			}}},
		}
	}
	return n
}

func TestAdvertisedResources(t *testing.T) {
	seven := map[string]int{"1g.10gb": 7}
	all := []map[string]int{seven, seven, seven, seven}
	type counts = map[corev1.ResourceName]int64
	for name, test := range map[string]struct {
		config, strategy string
		partitions       []map[string]int
		want             counts
		failure          string
		product          string
	}{
		"whole": {config: "version: v1", want: counts{"nvidia.com/gpu": 4}, product: "NVIDIA-H100-80GB-HBM3"},
		"time-slicing": {
			config: sliced, strategy: "single", want: counts{"nvidia.com/gpu": 16}, product: "NVIDIA-H100-80GB-HBM3-SHARED",
		},
		"renamed": {
			config: strings.Replace(sliced, "{resources", "{renameByDefault: true, resources", 1),
			want:   counts{"nvidia.com/gpu.shared": 16}, product: "NVIDIA-H100-80GB-HBM3",
		},
		"MPS": {
			config: multi, strategy: "single", want: counts{"nvidia.com/gpu": 40}, product: "NVIDIA-H100-80GB-HBM3-SHARED",
		},
		"MIG without a strategy": {
			config: "version: v1", partitions: all, want: counts{"nvidia.com/gpu": 4}, product: "NVIDIA-H100-80GB-HBM3",
		},
		"MIG single": {
			config: "version: v1", strategy: "single", partitions: all, want: counts{"nvidia.com/gpu": 28},
			product: "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb",
		},
		"MIG single by the configuration, shared": {
			config: "flags: {migStrategy: single}\n" + sliced, partitions: all, want: counts{"nvidia.com/gpu": 112},
			product: "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb-SHARED",
		},
		"MIG single, one GPU is whole": {
			config: "version: v1", strategy: "single", partitions: all[:3], want: counts{}, failure: "more than one",
			product: "NVIDIA-H100-80GB-HBM3-MIG-INVALID",
		},
		"MIG mixed": {
			config: "version: v1", strategy: "mixed",
			partitions: []map[string]int{{"3g.40gb": 1, "2g.20gb": 2}, {"1g.10gb+me": 1, "1g.10gb": 6}},
			want: counts{
				"nvidia.com/gpu": 2, "nvidia.com/mig-3g.40gb": 1, "nvidia.com/mig-2g.20gb": 2,
				"nvidia.com/mig-1g.10gb": 6, "nvidia.com/mig-1g.10gb.me": 1,
			},
			product: "NVIDIA-H100-80GB-HBM3",
		},
		"MIG mixed with MPS": {
			config: multi, strategy: "mixed", partitions: all, failure: "not supported with MPS",
			want: counts{"nvidia.com/mig-1g.10gb": 28}, product: "NVIDIA-H100-80GB-HBM3",
		},
		"MIG single with MPS": {
			config: multi, strategy: "single", partitions: all, failure: "not supported for MIG devices",
			want: counts{"nvidia.com/gpu": 280}, product: "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb-SHARED",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			n := sharingNode(t, test.config, test.strategy, test.partitions...)
			g.Expect(n.offered()).To(Equal(test.want))
			if test.failure == "" {
				g.Expect(n.pluginFailure(n.plugin())).To(BeEmpty())
			}
			g.Expect(n.pluginFailure(n.plugin())).To(ContainSubstring(test.failure))
			g.Expect(n.features(n.plugin())).To(HaveKeyWithValue("gpu.product", test.product))
		})
	}
}

// The kubelet keeps the capacity of what is no longer advertised for five minutes, with nothing to give of it. An
// unhealthy device stays so until the device plugin is restarted.
func TestReportedResources(t *testing.T) {
	g := NewWithT(t)
	begin := time.Now()
	n := sharingNode(t, "version: v1", "mixed")
	at := func(after time.Duration) resources {
		n.advertised = n.report(begin.Add(after))
		return n.advertised
	}
	g.Expect(at(0)).To(Equal(resources{"nvidia.com/gpu": {capacity: 4, allocatable: 4}}))
	unhealthy := func(count string) { n.object.Annotations = map[string]string{UnhealthyAnnotation: count} }
	unhealthy("1")
	g.Expect(at(1)).To(Equal(resources{"nvidia.com/gpu": {capacity: 4, allocatable: 3}}))
	unhealthy("0")
	g.Expect(at(2)).To(Equal(resources{"nvidia.com/gpu": {capacity: 4, allocatable: 3}}))
	n.plugin().mains[0].restarts++
	g.Expect(at(3)).To(Equal(resources{"nvidia.com/gpu": {capacity: 4, allocatable: 4}}))
	for i := range n.partitions {
		n.partitions[i] = partition{enabled: true, devices: map[string]int{"3g.40gb": 2}}
	}
	devices := amount{capacity: 8, allocatable: 8}
	g.Expect(at(time.Second)).To(Equal(resources{
		"nvidia.com/mig-3g.40gb": devices, "nvidia.com/gpu": {capacity: 4, withdrawn: begin.Add(time.Second)},
	}))
	g.Expect(n.nextWithdrawal()).To(Equal(begin.Add(time.Second + withdrawal)))
	g.Expect(at(time.Second + withdrawal)).To(Equal(resources{
		"nvidia.com/mig-3g.40gb": devices, "nvidia.com/gpu": {withdrawn: begin.Add(time.Second)},
	}))
	g.Expect(n.nextWithdrawal().IsZero()).To(BeTrue())
}

func TestGeneratedLayouts(t *testing.T) {
	g := NewWithT(t)
	layouts := generatedLayouts(models[ModelH100])
	for name, count := range map[string]int{
		"1g.10gb": 7, "1g.10gb+me": 1, "1g.20gb": 4, "2g.20gb": 3, "3g.40gb": 2, "4g.40gb": 1, "7g.80gb": 1,
	} {
		layout := layouts["all-"+strings.ReplaceAll(name, "+", ".")]
		g.Expect(partitionsOf(layout, make([]partition, 1))).
			To(Equal([]partition{{enabled: true, devices: map[string]int{name: count}}}), name)
	}
	for name, layout := range layouts {
		for _, entry := range layout {
			g.Expect(models[ModelH100].supports(entry.MIG)).To(BeTrue(), name)
		}
	}
	g.Expect(layouts).To(HaveLen(10))
	g.Expect(models[ModelH100].supports(map[string]int{"3g.40gb": 2, "1g.10gb": 1})).To(BeFalse(), "no memory is left")
	g.Expect(models[ModelH100].supports(map[string]int{"1g.12gb": 1})).To(BeFalse(), "it is of other GPUs")
}

func TestLayoutsOfUsers(t *testing.T) {
	g := NewWithT(t)
	layouts, err := readLayouts(`version: v1
mig-configs:
  halves:
  - {devices: [1], mig-enabled: true, mig-devices: {"3g.40gb": 2}}
  - {device-filter: ["0x233010DE"], devices: [0], mig-enabled: false}
`)
	g.Expect(err).NotTo(HaveOccurred())
	half := partition{enabled: true, devices: map[string]int{"3g.40gb": 2}}
	g.Expect(partitionsOf(layouts["halves"], make([]partition, 3))).To(Equal([]partition{{}, half, {}}))
	for _, wrong := range []string{"mig-configs: {}", "version: v1\nlayouts: {}", "version: ["} {
		_, err := readLayouts(wrong)
		g.Expect(err).To(HaveOccurred(), wrong)
	}
}

func TestConfigManagerChooses(t *testing.T) {
	g := NewWithT(t)
	data := map[string]string{"sliced": sliced, "broken": "version: v2"}
	c := &configured{}
	c.choose("", data)
	g.Expect(*c).To(Equal(configured{}))
	c.choose("sliced", data)
	g.Expect(c.config.replicas(resourceGPU)).To(Equal(int64(4)))
	c.choose("missing", data)
	g.Expect(c.missing).To(Equal("missing"))
	g.Expect(c.config.replicas(resourceGPU)).To(Equal(int64(4)), "the previous one stays")
	c.choose("broken", data)
	g.Expect(c.missing).To(BeEmpty())
	g.Expect(c.invalid).To(ContainSubstring("unknown version"))
	c.fallback = "sliced"
	c.choose("", data)
	g.Expect(c.invalid).To(BeEmpty())
	g.Expect(c.config.replicas(resourceGPU)).To(Equal(int64(4)))
}

func TestAConfigurationInAnAnnotation(t *testing.T) {
	g := NewWithT(t)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"example.com/config": sliced}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Env:          []corev1.EnvVar{{Name: "CONFIG_FILE", Value: "/config/config.yaml"}},
				VolumeMounts: []corev1.VolumeMount{{Name: "other", MountPath: "/x"}, {Name: "config", MountPath: "/config"}},
			}},
			Volumes: []corev1.Volume{{Name: "other"}, {
				Name: "config", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
					Items: []corev1.DownwardAPIVolumeFile{{Path: "config.yaml", FieldRef: &corev1.ObjectFieldSelector{
						FieldPath: "metadata.annotations['example.com/config']",
					}}},
				}},
			}},
		},
	}
	found := newConfigured(pod)
	g.Expect(found).NotTo(BeNil())
	g.Expect(found.config.replicas(resourceGPU)).To(Equal(int64(4)))
	pod.Spec.Volumes = nil
	g.Expect(newConfigured(pod)).To(BeNil())
}

func TestPodsAboveOneShareAreRefused(t *testing.T) {
	quantity := func(count string) *pod {
		return newPod(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "user"},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(count)},
			}}}},
		}, time.Now(), "10.0.0.1")
	}
	for name, test := range map[string]struct {
		config, count string
		refused       bool
	}{
		"one of MPS":      {config: multi, count: "1"},
		"two of MPS":      {config: multi, count: "2", refused: true},
		"two time slices": {config: sliced, count: "2"},
		"two whole GPUs":  {config: "version: v1", count: "2"},
		"two time slices, as the user does not want": {
			config: strings.Replace(sliced, "{resources", "{failRequestsGreaterThanOne: true, resources", 1),
			count:  "2", refused: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p := quantity(test.count)
			g.Expect(p.admit(sharingNode(t, test.config, ""))).To(Equal(!test.refused))
			if test.refused {
				g.Expect(p.phase()).To(Equal(corev1.PodFailed))
			}
		})
	}
}
