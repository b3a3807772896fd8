package observe_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

func TestConfigurationOfOpenShift(t *testing.T) {
	const version, proxy = "kind: ClusterVersion, metadata: {name: version}", "kind: Proxy, metadata: {name: cluster}"
	const group = "apiVersion: config.openshift.io/v1, "
	tests := map[string]struct {
		object string
		want   operand.OpenShiftCluster
	}{
		"an update is under way": {
			group + version + ", status: {history: [{state: Partial, version: 4.19.0}, {state: Completed, version: 4.18.12}, " +
				"{state: Completed, version: 4.17.9}]}", operand.OpenShiftCluster{Version: "4.18"},
		},
		"a candidate": {
			group + version + ", status: {history: [{state: Completed, version: 4.20.0-rc.1}]}",
			operand.OpenShiftCluster{Version: "4.20"},
		},
		"a release without a patch": {
			group + version + ", status: {history: [{state: Completed, version: '4.18'}]}",
			operand.OpenShiftCluster{Version: "4.18"},
		},
		"the first installation":  {object: group + version + ", status: {history: [{state: Partial, version: 4.19.0}]}"},
		"no status":               {object: group + version},
		"malformed":               {object: group + version + ", status: {history: [a, {state: Completed, version: {}}]}"},
		"a version without parts": {object: group + version + ", status: {history: [{state: Completed, version: next}]}"},
		"of another name": {
			object: group + "kind: ClusterVersion, metadata: {name: a}, " +
				"status: {history: [{state: Completed, version: 4.18.1}]}",
		},
		"a proxy": {
			group + proxy + ", spec: {httpProxy: http://spec, noProxy: mine, trustedCA: {name: ''}}, status: {httpProxy: " +
				"http://a, httpsProxy: http://b, noProxy: 'mine,.svc'}",
			operand.OpenShiftCluster{Proxy: v1.ProxySpec{HTTPProxy: "http://a", HTTPSProxy: "http://b", NoProxy: "mine,.svc"}},
		},
		"a proxy with certificates": {
			group + proxy + ", spec: {trustedCA: {name: user-ca-bundle}}, status: {httpsProxy: http://b}",
			operand.OpenShiftCluster{Proxy: v1.ProxySpec{HTTPSProxy: "http://b"}, ProxyHasCA: true},
		},
		"a proxy that was not validated": {object: group + proxy + ", spec: {httpProxy: http://spec}"},
		"exceptions and certificates alone": {
			object: group + proxy + ", spec: {trustedCA: {name: user-ca-bundle}}, status: {noProxy: .svc}",
		},
		"a malformed proxy": {object: group + proxy + ", spec: a, status: {httpProxy: {}}"},
		"of another group":  {object: "apiVersion: example.com/v1, " + proxy + ", status: {httpProxy: http://a}"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			object := &unstructured.Unstructured{}
			g.Expect(yaml.Unmarshal([]byte("{"+test.object+"}"), &object.Object)).To(Succeed())
			var got operand.OpenShiftCluster
			observe.AddOpenShift(&got, object)
			g.Expect(got).To(Equal(test.want))
		})
	}
}

// Each object is watched by itself, and an update counts if it changes what is read.
func TestWatchesOfOpenShift(t *testing.T) {
	g := NewWithT(t)
	proxies, versions := &informertest.FakeInformers{}, &informertest.FakeInformers{}
	mapper := meta.NewDefaultRESTMapper(nil)
	watches := observe.NewOpenShift(proxies, versions, mapper, clock.RealClock{}).Watches()
	g.Expect(watches).To(HaveLen(2))
	g.Expect(watches[0].Cache).To(BeIdenticalTo(proxies))
	g.Expect(watches[1].Cache).To(BeIdenticalTo(versions))
	for i, kind := range []string{"Proxy", "ClusterVersion"} {
		g.Expect(watches[i].Object.GetObjectKind().GroupVersionKind().String()).To(
			Equal("config.openshift.io/v1, Kind=" + kind))
		g.Expect(watches[i].Mapper).To(BeIdenticalTo(mapper))
		g.Expect(watches[i].Clock).To(Equal(clock.RealClock{}))
	}
	proxy := func(address, text string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "config.openshift.io/v1", "kind": "Proxy", "metadata": map[string]any{"name": "cluster"},
			"status": map[string]any{"httpProxy": address, "text": text},
		}}
	}
	differs := watches[0].Differs
	g.Expect(differs(proxy("http://a", "1"), proxy("http://a", "2"))).To(BeFalse())
	g.Expect(differs(proxy("http://a", "1"), proxy("http://b", "1"))).To(BeTrue())
	g.Expect(differs(1, proxy("http://a", "1"))).To(BeTrue())
}
