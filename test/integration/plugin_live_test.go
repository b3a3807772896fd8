package integration

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/needs"
)

// planted is in each credential that the tests plant.
const planted = "PLANTED"

// hostAddress returns an address of this machine that the API server proxies to: it refuses loopback and link-local
// ones. It is empty on a machine without a network.
func hostAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range all {
		if network, is := address.(*net.IPNet); is && network.IP.To4() != nil && network.IP.IsGlobalUnicast() {
			return network.IP.String()
		}
	}
	return ""
}

// needsAddress skips a test on a machine without an address that the API server proxies to.
func needsAddress(t *testing.T, address string) {
	t.Helper()
	if address == "" {
		needs.Unmet(t, needs.Address, "the API server does not proxy to loopback")
	}
}

// serveOn serves a handler on a free port of an address; with TLS for a kubelet.
func serveOn(t *testing.T, address string, handler http.Handler, secure bool) (port int) {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	_ = server.Listener.Close()
	server.Listener = listener
	if secure {
		server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return listener.Addr().(*net.TCPAddr).Port //nolint:errcheck,forcetypeassert // It is of TCP.
}

// exporterOf answers for the exporters of all nodes. The API server's proxy states the pod that it was asked for.
type exporterOf struct {
	// broken: the pod on gpu-00001 answers with an error.
	broken atomic.Bool
	// nodes by the name of the exporter's pod.
	nodes map[string]string
}

func (x *exporterOf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for pod, node := range x.nodes {
		if !strings.Contains(r.Header.Get("X-Forwarded-Uri"), "/pods/"+pod+":") {
			continue
		}
		if node == "gpu-00001" && x.broken.Load() {
			http.Error(w, "the engine is gone", http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, metricsOf[node])
		return
	}
	http.NotFound(w, r)
}

// metricsOf are those of exporter 4.8 on the first node, and of 4.9 on the second.
var metricsOf = map[string]string{
	"gpu-00000": `DCGM_FI_DEV_GPU_UTIL{gpu="0",pod="running",namespace="default",container="main"} 90
DCGM_FI_DEV_GPU_UTIL{gpu="1"} 10
DCGM_FI_DEV_FB_USED{gpu="0",pod="running",namespace="default",container="main"} 2048
DCGM_FI_DEV_FB_USED{gpu="1"} 0
DCGM_FI_DEV_POWER_USAGE{gpu="0",pod="running",namespace="default",container="main"} 500
DCGM_FI_DEV_POWER_USAGE{gpu="1"} 70
`,
	"gpu-00001": `DCGM_FI_DEV_GPU_UTIL_RATIO{gpu="0"} 0.25
DCGM_FI_DEV_FB_USED_BYTES{gpu="0"} 1073741824
DCGM_FI_DEV_BOARD_POWER_WATTS{gpu="0"} 100
`,
}

// usedNode is what top prints of a node or a pod.
type usedNode struct {
	Name                           string
	UtilizationPercent, PowerWatts float64
	MemoryUsedBytes                int64
}

// exitOf runs a command of the plugin and returns its exit code and what it prints.
func (e *env) exitOf(args ...string) (code int, out, errOut string) {
	e.t.Helper()
	cmd, stdout, stderr := e.pluginCommand(args...), &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = nil
	}
	e.Expect(err).NotTo(HaveOccurred())
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// runningExporters waits for the exporters of the two nodes with a driver, and returns their pods.
func (e *env) runningExporters() []corev1.Pod {
	e.t.Helper()
	pods := &corev1.PodList{}
	e.Eventually(func(g Gomega) {
		g.Expect(e.client.List(e.t.Context(), pods, client.InNamespace(namespace),
			client.MatchingLabels{"app": "nvidia-dcgm-exporter"})).To(Succeed())
		g.Expect(pods.Items).To(HaveLen(2), "on gpu-00002 there is no driver")
		g.Expect(pods.Items).To(HaveEach(HaveField("Status.Phase", corev1.PodRunning)))
	}).WithTimeout(readyTime).Should(Succeed())
	return pods.Items
}

// answerFor has the stand-ins for kubelets and exporters answer at an address of this machine, by patches of the
// addresses of nodes and pods.
func (e *env) answerFor(exporters *exporterOf, address string) {
	e.t.Helper()
	e.standInForKubelets(http.HandlerFunc(serveLogs), address, "gpu-00000", "gpu-00001", "gpu-00002")
	// With the address of a node the simulator writes the status of its pods again, once.
	e.Eventually(e.runningExporters).WithTimeout(readyTime).Should(HaveEach(HaveField("Status.HostIP", address)))
	exporters.nodes = map[string]string{}
	for _, pod := range e.runningExporters() {
		exporters.nodes[pod.Name] = pod.Spec.NodeName
		e.patchStatus(&pod, `{"status":{"podIP":%[1]q,"podIPs":[{"ip":%[1]q}]}}`, address)
	}
}

// standInForKubelets has a handler answer as the kubelets of nodes, at an address of this machine.
func (e *env) standInForKubelets(handler http.Handler, address string, nodes ...string) {
	e.t.Helper()
	port := serveOn(e.t, address, handler, true)
	for _, node := range nodes {
		e.patchStatus(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}},
			`{"status":{"addresses":[{"type":"InternalIP",`+
				`"address":%q}],"daemonEndpoints":{"kubeletEndpoint":{"Port":%d}}}}`, address, port)
	}
}

// patchStatus merges a patch into the status of an object.
func (e *env) patchStatus(object client.Object, format string, args ...any) {
	e.t.Helper()
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, format, args...))
	e.Expect(e.client.Status().Patch(e.t.Context(), object, patch)).To(Succeed())
}

// topAsksExporters: through the API server's proxy, top asks the exporter of each node. One that does not answer does
// not hide the others.
func (e *env) topAsksExporters(exporters *exporterOf) {
	e.t.Helper()
	code, out, errOut := e.exitOf("top", "nodes", "gpu-00000", "gpu-00001")
	e.Expect(code).To(Equal(0), errOut)
	e.Expect(out).To(MatchRegexp(`gpu-00000 +2 +50% +2048Mi +- +570W +-\ngpu-00001 +1 +25% +1024Mi +- +100W +-\n`))

	exporters.broken.Store(true)
	var found struct {
		Nodes  []usedNode
		Errors []struct{ Node, Message string }
	}
	code, out, errOut = e.exitOf("top", "nodes", "-o", "json")
	e.Expect(code).To(Equal(1))
	e.Expect(errOut).To(ContainSubstring("the usage of 2 nodes is unknown"))
	e.Expect(json.Unmarshal([]byte(out), &found)).To(Succeed())
	e.Expect(found.Nodes).To(Equal([]usedNode{{"gpu-00000", 50, 570, 2 << 30}}))
	e.Expect(found.Errors).To(HaveExactElements(
		And(HaveField("Node", "gpu-00001"), HaveField("Message", ContainSubstring("the engine is gone"))),
		And(HaveField("Node", "gpu-00002"), HaveField("Message", ContainSubstring("kubectl gpu explain gpu-00002")))))
	exporters.broken.Store(false)

	_, out, _ = e.exitOf("top", "pods", "-A", "--sort-by", "memory")
	e.Expect(out).To(MatchRegexp(
		`NAMESPACE +POD +NODE +GPUS .*\ndefault +running +gpu-00000 +1 +90% +2048Mi +- +500W +-\n$`))
	_, out, _ = e.exitOf("top", "pods", "-n", "poor")
	e.Expect(out).To(Equal("No pod with a GPU is reported.\n"))
	_, out, _ = e.exitOf("__complete", "top", "nodes", "gpu-0000")
	e.Expect(out).To(HavePrefix("gpu-00000\ngpu-00001\ngpu-00002\n"))
	_, out, _ = e.exitOf("__complete", "explain", "pod/r")
	e.Expect(out).To(HavePrefix("pod/running\n"))
	_, out, _ = e.exitOf("__complete", "top", "pods", "--namespace", "poo")
	e.Expect(out).To(HavePrefix("poor\n"))
}

// diffShowsFields: diff names each field that the operator would change. Its exit code reports whether there is one.
func (e *env) diffShowsFields(object *v1.ClusterPolicy) {
	e.t.Helper()
	file := func(change func(*v1.ClusterPolicySpec)) string {
		edited := object.DeepCopy()
		edited.ManagedFields, edited.ResourceVersion, edited.Status = nil, "", v1.ClusterPolicyStatus{}
		edited.SetGroupVersionKind(v1.ClusterPolicyKind)
		change(&edited.Spec)
		text, err := yaml.Marshal(edited)
		e.Expect(err).NotTo(HaveOccurred())
		return e.write(text)
	}
	e.Eventually(func() string {
		code, out, errOut := e.exitOf("diff", "-f", file(func(*v1.ClusterPolicySpec) {}))
		return fmt.Sprint(code, out, errOut)
	}).Should(MatchRegexp(`(?s)^0.*The operator would change no object`))

	edited := file(func(spec *v1.ClusterPolicySpec) {
		spec.DevicePlugin.Env = append(spec.DevicePlugin.Env, v1.EnvVar{Name: "FAIL_ON_INIT_ERROR", Value: "false"})
		spec.DCGMExporter.Enabled = new(false)
	})
	code, out, errOut := e.exitOf("diff", "-f", edited)
	e.Expect(code).To(Equal(1), errOut)
	e.Expect(errOut).To(BeEmpty())
	e.Expect(out).To(And(
		ContainSubstring("  - spec.dcgmExporter.enabled: true\n  + spec.dcgmExporter.enabled: false\n"),
		ContainSubstring(`  + spec.devicePlugin.env: [{"name":"FAIL_ON_INIT_ERROR","value":"false"}]`+"\n"),
		ContainSubstring("update DaemonSet nvidia-device-plugin-daemonset (device-plugin): 2 pods replaced\n"+
			"  - spec.template.spec.containers[nvidia-device-plugin].env[FAIL_ON_INIT_ERROR].value: \"true\"\n"+
			"  + spec.template.spec.containers[nvidia-device-plugin].env[FAIL_ON_INIT_ERROR].value: \"false\"\n"),
		ContainSubstring("delete DaemonSet nvidia-dcgm-exporter (dcgm-exporter): 2 pods removed\n"),
		HaveSuffix("4 pods replaced or removed on 2 nodes. Driver upgrades on 0 nodes.\n"),
	))
	code, _, errOut = e.exitOf("diff", "-f", file(func(spec *v1.ClusterPolicySpec) {
		spec.DCGMExporter.Env = []v1.EnvVar{{Name: "DCGM_EXPORTER_LISTEN", Value: "nonsense"}}
	}))
	e.Expect(code).To(Equal(2))
	e.Expect(errOut).To(ContainSubstring("the policy is invalid for dcgm-exporter"))
}

// write writes a file for a command.
func (e *env) write(text []byte) string {
	e.t.Helper()
	file := filepath.Join(e.t.TempDir(), "file.yaml")
	e.Expect(os.WriteFile(file, text, 0o600)).To(Succeed())
	return file
}

// plant puts credentials wherever users put them. That in the policy is there already.
func (e *env) plant() {
	e.t.Helper()
	e.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "registry-secret"},
		StringData: map[string]string{"password": planted + "-secret"},
	})
	e.create(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "theirs", Annotations: map[string]string{
			corev1.LastAppliedConfigAnnotation: `{"data":{"a":"` + planted + `-applied"}}`,
		}},
		Data: map[string]string{"app.conf": "the word is " + planted + "-configmap"},
	})
	pod := corev1.PodSpec{Containers: []corev1.Container{{
		Name: "main", Image: "example.com/a", Args: []string{"--token", planted + "-arg", "--password=" + planted + "-arg2"},
		Command: []string{"sh", "-c", "curl https://user:" + planted + "-url@example.com/ " +
			"-H 'Authorization: Bearer " + planted +
			"-header'"},
		Env: []corev1.EnvVar{
			{Name: "DB_PASSWORD", Value: planted + "-env"},
			{Name: "HTTPS_PROXY", Value: "http://user:" + planted + "-proxy@proxy:3128"},
			{Name: "SETTINGS", Value: `{"auths":{"nvcr.io":{"auth":"` + planted + `-auth"}}}`},
		},
	}}}
	labels := map[string]string{"app": "theirs"}
	e.create(&appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "theirs", Annotations: map[string]string{
			"example.com/note": planted + "-annotation",
		}},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
		},
	})
	tenant := gpuPod("tenant", "gpu-00001")
	tenant.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "ANYTHING", Value: planted + "-tenant"}}
	e.create(tenant)
	e.create(&corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: "planted"},
		InvolvedObject: corev1.ObjectReference{Namespace: namespace, Kind: "Pod", Name: "x"},
		Message:        "pull of https://user:" + planted + "-event@registry.example.com failed",
		Type:           corev1.EventTypeWarning,
	})
	e.Expect(e.client.Patch(e.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-00000"}},
		client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"example.com/join-token":"`+
			planted+`-node"}}}`)))).To(Succeed())
}

// kubeletLog is what the stand-in for kubelets returns as the log of each container: two credentials with a name, and
// one that is known from the environment of a container.
const kubeletLog = "a line\nlogin with password=PLANTED-log\nconnected as PLANTED-env\n" +
	"key nvapi-PLANTED0123456789abcdefgh\n"

// serveLogs answers as a kubelet.
func serveLogs(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.URL.Path, "/containerLogs/"+namespace+"/") {
		http.NotFound(w, r)
		return
	}
	_, _ = io.WriteString(w, kubeletLog)
}

// collectHasNoCredentials: the bundle has what the issue template asks for, and none of what was planted.
func (e *env) collectHasNoCredentials() {
	e.t.Helper()
	e.plant()
	file := filepath.Join(e.t.TempDir(), "bundle.tar.gz")
	code, out, errOut := e.exitOf("collect", file)
	e.Expect(code).To(Equal(0), errOut)
	e.Expect(out).To(MatchRegexp(`bundle\.tar\.gz: \d+ files, \d+ values redacted\.\n`))
	files := e.unpack(file)
	for name, text := range files {
		e.Expect(text).NotTo(ContainSubstring(planted), name)
	}
	for name, part := range map[string]string{
		"summary.txt":                            "2 of 3 nodes ready",
		"index.json":                             `"redacted": {`,
		"clusterpolicies.yaml":                   "name: NGC_API_KEY\n",
		"nodes.yaml":                             "nvidia.com/gpu.present: \"true\"",
		"gpu-pods.yaml":                          "name: tenant",
		"versions.json":                          "gitVersion",
		"status.txt":                             "CrashLoopBackOff",
		"status.html":                            "CrashLoopBackOff",
		"explain/gpu-00002.txt":                  "Cause:",
		namespace + "/events.yaml":               "https://[redacted]@registry.example.com",
		namespace + "/daemonsets.yaml":           "name: nvidia-driver-daemonset",
		namespace + "/configmaps.yaml":           "app.conf: '[redacted: ",
		namespace + "/deployments.yaml":          "name: DB_PASSWORD\n",
		"crds.yaml":                              "name: clusterpolicies.nvidia.com",
		namespace + "/rolebindings.yaml":         "kind: List",
		namespace + "/serviceaccounts.yaml":      "nvidia-driver",
		namespace + "/networkpolicies.yaml":      "kind: List",
		namespace + "/leases.yaml":               "kind: List",
		namespace + "/services.yaml":             "nvidia-dcgm-exporter",
		namespace + "/poddisruptionbudgets.yaml": "kind: List",
	} {
		e.Expect(files).To(HaveKeyWithValue(name, ContainSubstring(part)))
	}
	var logs, metrics int
	for name, text := range files {
		if strings.HasPrefix(name, "logs/") {
			logs++
			e.Expect(text).To(And(HavePrefix("a line\nlogin with password=[redacted]\n"), ContainSubstring("as [redacted]\n")))
		}
		if strings.HasPrefix(name, "metrics/") {
			metrics++
			e.Expect(text).To(ContainSubstring("DCGM_FI_DEV_"))
		}
	}
	e.Expect([]int{logs, metrics}).To(HaveExactElements(BeNumerically(">", 10), 2), files["index.json"])
	code, _, errOut = e.exitOf("collect", file)
	e.Expect([]any{code, errOut}).To(HaveExactElements(1, ContainSubstring("exists, and is not replaced")))
	e.collectWithoutRights()
}

// collectWithoutRights: what a user may not read is listed, and the rest is written.
func (e *env) collectWithoutRights() {
	e.t.Helper()
	e.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "poor"}})
	kubeconfig, err := e.cluster.ServiceAccountKubeconfig(e.t.Context(), "default", "poor", "")
	e.Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(e.t.TempDir(), "poor.tar.gz")
	code, _, errOut := e.exitOf("collect", file, "--kubeconfig", kubeconfig)
	e.Expect(code).To(Equal(0), errOut)
	e.Expect(errOut).To(MatchRegexp(`\d+ parts could not be read`))
	files := e.unpack(file)
	e.Expect(files).To(HaveKey("versions.json"))
	e.Expect(files["index.json"]).To(MatchRegexp(
		`(?s)"name": "nodes.yaml",.*"reason": ".*\(Forbidden\).*nodes is forbidden`))
	cmd := e.pluginCommand("collect", filepath.Join(e.t.TempDir(), "none.tar.gz"),
		"--kubeconfig", filepath.Join(e.t.TempDir(),
			"none"))
	e.Expect(cmd.Run()).NotTo(Succeed(), "there is no cluster")
}

// unpack returns the files of a bundle by their names in its folder.
func (e *env) unpack(file string) map[string]string {
	e.t.Helper()
	text, err := os.ReadFile(file)
	e.Expect(err).NotTo(HaveOccurred())
	packed, err := gzip.NewReader(bytes.NewReader(text))
	e.Expect(err).NotTo(HaveOccurred())
	files, archive := map[string]string{}, tar.NewReader(packed)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		e.Expect(err).NotTo(HaveOccurred())
		content, err := io.ReadAll(archive)
		e.Expect(err).NotTo(HaveOccurred())
		_, name, _ := strings.Cut(header.Name, "/")
		files[name] = string(content)
	}
}
