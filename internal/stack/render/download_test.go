package render_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

const (
	openShiftVersion = "OPENSHIFT_VERSION"
	trustedCA        = "gpu-operator-trusted-ca"
)

// onOpenShift is a cluster of OpenShift behind a proxy with certificates of its own.
var onOpenShift = operand.OpenShiftCluster{
	Version: "4.18", ProxyHasCA: true, Proxy: v1.ProxySpec{HTTPSProxy: "http://cluster", NoProxy: ".svc"},
}

// clusterProxy are the variables of a container with the proxy of onOpenShift.
func clusterProxy() map[string][]string {
	except := []string{".svc,$(KUBERNETES_SERVICE_HOST)"}
	return map[string][]string{
		"HTTPS_PROXY": {"http://cluster"}, "https_proxy": {"http://cluster"}, "NO_PROXY": except, "no_proxy": except,
	}
}

// The driver's containers get the proxy of the cluster, unless the spec or the operator's environment names one. A
// variable of the user replaces that one alone.
func TestTheDriverGetsTheProxyOfTheCluster(t *testing.T) {
	inEnv := clusterProxy()
	delete(inEnv, "HTTPS_PROXY")
	inEnv["https_proxy"] = []string{"mine"}
	except := []string{"$(KUBERNETES_SERVICE_HOST)"}
	named := map[string][]string{
		"HTTP_PROXY": {"http://p"}, "http_proxy": {"http://p"}, "NO_PROXY": except, "no_proxy": except,
	}
	tests := map[string]struct {
		s    situation
		want map[string][]string
	}{
		"no other":           {situation{openShift: onOpenShift}, clusterProxy()},
		"in its environment": {situation{openShift: onOpenShift, spec: driverEnv("https_proxy", "mine")}, inEnv},
		"of the operator":    {situation{openShift: onOpenShift, proxy: v1.ProxySpec{HTTPProxy: "http://p"}}, named},
		"of the spec": {
			withGlobal(situation{openShift: onOpenShift}, v1.GlobalSpec{Proxy: &v1.ProxySpec{HTTPProxy: "http://p"}}), named,
		},
		"none on another cluster": {situation{}, map[string][]string{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, c := range test.s.daemonSet(t, "driver").Spec.Template.Spec.Containers {
				if diff := cmp.Diff(test.want, proxies(c)); diff != "" {
					t.Errorf("%s: -want +got:\n%s", c.Name, diff)
				}
			}
		})
	}
	for name, sets := range (situation{openShift: onOpenShift}).daemonSets(t) {
		for _, ds := range sets {
			pod := ds.Spec.Template.Spec
			if name != "driver" {
				pod.InitContainers = append(pod.InitContainers, pod.Containers...)
			}
			for _, c := range pod.InitContainers {
				if found := proxies(c); len(found) > 0 || variables(c)[openShiftVersion] != nil {
					t.Errorf("%s: container %s has %v", name, c.Name, c.Env)
				}
			}
		}
	}
}

// OPENSHIFT_VERSION is for the driver container alone, and one of the user stays.
func TestTheDriverGetsTheVersionOfOpenShift(t *testing.T) {
	sidecar := v1.ClusterPolicySpec{GDRCopy: &v1.GDRCopySpec{Enabled: new(true)}}
	for name, test := range map[string]struct {
		s    situation
		want []string
	}{
		"OpenShift":       {situation{spec: sidecar, openShift: onOpenShift}, []string{"4.18"}},
		"the user's":      {situation{spec: driverEnv(openShiftVersion, "4.20"), openShift: onOpenShift}, []string{"4.20"}},
		"another cluster": {situation{spec: sidecar}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range containers(&test.s.daemonSet(t, "driver").Spec.Template.Spec) {
				want := test.want
				if c.Name != "nvidia-driver-ctr" {
					want = nil
				}
				if diff := cmp.Diff(want, variables(c)[openShiftVersion]); diff != "" {
					t.Errorf("%s: -want +got:\n%s", c.Name, diff)
				}
			}
		})
	}
}

// The certificates for the cluster's proxy are mounted where the package manager reads them, once OpenShift has filled
// the ConfigMap, and unless the spec has others.
func TestTheDriverTrustsTheProxyOfTheCluster(t *testing.T) {
	const file = "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"
	rhel := []nodeinfo.Facts{node("rhel", "9.6")}
	empty := map[string][]string{trustedCA: {}}
	filled := map[string][]string{trustedCA: {"ca-bundle.crt"}, "authorities": {"all.pem"}}
	public := onOpenShift
	public.ProxyHasCA = false
	for name, test := range map[string]struct {
		s    situation
		want string
	}{
		"filled":          {situation{nodes: rhel, openShift: onOpenShift, configMaps: filled}, trustedCA},
		"not filled":      {situation{nodes: rhel, openShift: onOpenShift, configMaps: empty}, ""},
		"public":          {situation{nodes: rhel, openShift: public, configMaps: filled}, ""},
		"another cluster": {situation{nodes: rhel, configMaps: filled}, ""},
		"of the spec": {
			withGlobal(situation{nodes: rhel, openShift: onOpenShift, configMaps: filled},
				v1.GlobalSpec{CABundle: &v1.CABundleSpec{ConfigMapName: "authorities", Key: "all.pem"}}), "authorities",
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := test.s.daemonSet(t, "driver").Spec.Template.Spec
			if got := sourceOf(pod, pod.Containers[0], file); got != test.want {
				t.Errorf("%s is of ConfigMap %q, want %q", file, got, test.want)
			}
		})
	}
	missing := situation{nodes: rhel, openShift: onOpenShift, contents: map[operand.Reference]operand.Content{}}
	pod := missing.daemonSet(t, "driver").Spec.Template.Spec
	if got := sourceOf(pod, pod.Containers[0], file); got != "" {
		t.Errorf("without the ConfigMap, %s is of %q", file, got)
	}
}

// sourceOf returns the ConfigMap from which a container has a file; empty for none.
func sourceOf(pod corev1.PodSpec, c corev1.Container, file string) string {
	for _, mount := range c.VolumeMounts {
		for _, volume := range pod.Volumes {
			if mount.MountPath == file && volume.Name == mount.Name {
				return volume.ConfigMap.Name
			}
		}
	}
	return ""
}

// An update of OpenShift and another proxy write the template for new pods, and make no driver outdated.
func TestOpenShiftMakesNoDriverOutdated(t *testing.T) {
	configMaps := map[string][]string{trustedCA: {"ca-bundle.crt"}}
	base := situation{configMaps: configMaps, openShift: onOpenShift}
	updated, moved := base, base
	updated.openShift.Version = "4.19"
	moved.openShift.Proxy.HTTPSProxy = "http://another"
	for name, other := range map[string]situation{
		"another version": updated, "another proxy": moved, "the first configuration": {configMaps: configMaps},
		"a proxy of the operator": {configMaps: configMaps, proxy: v1.ProxySpec{HTTPProxy: "http://own"}},
	} {
		if digest(t, base, "driver") != digest(t, other, "driver") {
			t.Errorf("%s makes drivers outdated", name)
		}
		before, after := base.daemonSet(t, "driver"), other.daemonSet(t, "driver")
		if cmp.Equal(before.Spec.Template.Spec, after.Spec.Template.Spec) {
			t.Errorf("%s does not reach new pods", name)
		}
	}
}

// driverEnv is a spec with a variable of the driver.
func driverEnv(name, value string) v1.ClusterPolicySpec {
	return v1.ClusterPolicySpec{Driver: &v1.DriverSpec{
		ContainerSpec: v1.ContainerSpec{Env: []v1.EnvVar{{Name: name, Value: value}}},
	}}
}
