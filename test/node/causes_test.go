//go:build linux

package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/node"
)

// cause is a failure of the device plugin's pod whose cause the kubelet, the scheduler or the API server knows.
type cause struct {
	name string
	// spec is the merge patch of the policy's spec.
	spec map[string]any
	// order is what the plugin is told; nil for an undisturbed one.
	order *node.Order
	// forbids is an object of this resource in the operator's namespace, and keeps the plugin's pod from being created;
	// nil for none.
	forbids  runtime.Object
	resource string
	// reason of the node, if the words do not say it.
	reason string
	// words decide: someone who reads them knows what to do.
	words []string
}

// plugin is a patch of the block of the device plugin.
func plugin(fields map[string]any) map[string]any { return map[string]any{"devicePlugin": fields} }

// pulled is a patch by which the device plugin's image comes from a repository.
func pulled(registry, repository string) map[string]any {
	return plugin(map[string]any{"image": registry + "/" + repository + "/k8s-device-plugin:v1"})
}

// limits is a patch of the limits and requests of the plugin's container.
func limits(resource, value string) map[string]any {
	list := map[string]any{resource: value}
	return plugin(map[string]any{"containerResources": []any{map[string]any{
		"name": devicePlugin.container, "limits": list, "requests": list,
	}}})
}

// podSecurity is a patch of the security context of all pods.
func podSecurity(of map[string]any) map[string]any {
	return map[string]any{"daemonsets": map[string]any{"podSecurityContext": of, "updateStrategy": "RollingUpdate"}}
}

// ofImages are failures of images.
func ofImages(of registries) []cause {
	return []cause{
		{name: "no such image", spec: pulled(of.local, "missing"), words: []string{"not found"}},
		{name: "no such layer", spec: pulled(of.local, "layers"), words: []string{"/layers/", "not found"}},
		{name: "credentials required", spec: pulled(of.local, "unauthorized"),
			words: []string{"may require authorization: authorization failed"}},
		{name: "access denied", spec: pulled(of.local, "forbidden"), words: []string{"403 Forbidden"}},
		{name: "rate limit", spec: pulled(of.local, "limited"), words: []string{"429 Too Many Requests"}},
		{name: "registry fails", spec: pulled(of.local, "broken"), words: []string{"500 Internal Server Error"}},
		{name: "other platform", spec: pulled(of.local, "platform"), words: []string{"no match for platform in manifest"}},
		{name: "registry without TLS", spec: pulled(of.plain, "missing"),
			words: []string{"server gave HTTP response to HTTPS client"}},
		{name: "certificate of another name", spec: pulled(of.otherName, "missing"),
			words: []string{"failed to verify certificate: x509: certificate is valid for 127.0.0.1"}},
		{name: "registry down", spec: pulled(of.closed, "missing"), words: []string{"connection refused"}},
		{name: "registry unknown", spec: pulled("registry.invalid", "missing"), words: []string{"registry.invalid"}},
		{name: "never pulled", spec: plugin(map[string]any{
			"image": of.local + "/missing/k8s-device-plugin:v2", "imagePullPolicy": "Never",
		}), reason: "ErrImageNeverPull", words: []string{"is not present with pull policy of Never"}},
	}
}

// ofPods are failures of pods before a container runs.
func ofPods(file string) []cause {
	return []cause{
		{name: "a file for a directory", spec: plugin(map[string]any{"mps": map[string]any{"root": file}}),
			reason: "FailedMount", words: []string{file, "not a directory"}},
		{name: "a quota", resource: "resourcequotas", forbids: &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Name: forbidding},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
		}, reason: "QuotaExceeded", words: []string{"exceeded quota: " + forbidding}},
		{name: "too much CPU", spec: limits("cpu", "1000"), reason: "Unschedulable", words: []string{"Insufficient cpu"}},
		{name: "a directory that cannot be made", spec: plugin(map[string]any{"mps": map[string]any{"root": "/proc/none"}}),
			reason: "FailedMount", words: []string{"/proc/none"}},
		{name: "too much memory", spec: limits("memory", "100Ti"), reason: "Unschedulable",
			words: []string{"Insufficient memory"}},
		{name: "an unknown resource", spec: limits("example.com/none", "1"),
			reason: "Unschedulable", words: []string{"Insufficient example.com/none"}},
		{name: "sysctl forbidden", spec: podSecurity(map[string]any{
			"sysctls": []any{map[string]any{"name": "kernel.msgmax", "value": "1"}},
		}), words: []string{`forbidden sysctl: "kernel.msgmax"`}},
		{name: "root forbidden", spec: podSecurity(map[string]any{"runAsNonRoot": true}),
			words: []string{"breaks non-root policy"}},
		{name: "a limit range", resource: "limitranges", forbids: &corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Name: forbidding},
			Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
				Type: corev1.LimitTypePod, Min: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Ti")},
			}}},
		}, words: []string{"minimum memory usage per Pod is 1Ti"}},
		{name: "no memory to start", spec: limits("memory", "1Mi"), words: []string{"memory"}},
	}
}

// ofPrograms are failures of the program.
func ofPrograms() []cause {
	exit := func(message string, code int) *node.Order {
		return &node.Order{Fault: "exit", Message: message, Code: code}
	}
	return []cause{
		{name: "its last words", order: exit(lastWords, 3), words: []string{"exit code 3", lastWords}},
		{name: "an error before its last line", order: exit("E1127 10:00:00.000000 1 main.go:1] open /dev/nvidiactl: "+
			"no such file or directory\nstopping", 4), words: []string{"open /dev/nvidiactl: no such file or directory"}},
		{name: "a panic", order: exit("panic: runtime error: index out of range [3]\n\ngoroutine 1 [running]:\nmain()", 2),
			words: []string{"exit code 2", "index out of range [3]"}},
		{name: "no space", order: exit("write /var/lib/state: no space left on device", 5),
			words: []string{"no space left on device"}},
		{name: "a library is missing", order: exit("error while loading shared libraries: libnvidia-ml.so.1: cannot open "+
			"shared object file", 127), words: []string{"exit code 127", "libnvidia-ml.so.1"}},
		{name: "out of memory", order: &node.Order{Fault: "memory"}, spec: limits("memory", "64Mi"),
			words: []string{"exit code 137", "OOMKilled"}},
		{name: "the program is missing", spec: plugin(map[string]any{"image": imageWithout}),
			words: []string{"nvidia-device-plugin", "not found"}},
		{name: "the program is of another platform", spec: plugin(map[string]any{"image": imageOfText}),
			words: []string{"exec format error"}},
	}
}

// Images that were built wrongly: without the program of the device plugin, and with a text in place of it.
const imageWithout, imageOfText = "example.com/without:1", "example.com/text:1"

func (b *env) loadWrongImages() {
	text := filepath.Join(b.t.TempDir(), "text")
	b.Expect(os.WriteFile(text, []byte("no program\n"), 0o755)).To(Succeed())
	b.load(played(imageWithout, "another-program"))
	b.load(node.Image{
		Names: []string{imageOfText}, Files: map[string]string{"usr/bin/" + devicePlugin.program: text},
		Env: []string{"PATH=/usr/bin"},
	})
}

// TestCauses checks that the decisive words of the kubelet, the scheduler or the API server about a failure are in the
// condition of the node, in the status of the policy, in an Event and in the output of kubectl gpu explain, and that
// the commands which that names run.
func TestCauses(t *testing.T) {
	if !cluster.FullCampaigns() {
		t.Skip("all causes take ten minutes: set TEST_FULL=1; unit tests have the words of kubelets and runtimes")
	}
	b := newEnv(t)
	b.loadNVIDIA()
	b.deployOperator(privileged)
	b.loadWrongImages()
	b.createPolicy(samplePolicy())
	b.awaitHealthy("3m")
	file := "/run/gpu-operator-file"
	b.Expect(os.WriteFile(b.machine.Running(file), nil, 0o644)).To(Succeed())
	begin := time.Now()
	all := append(append(ofImages(b.serveRegistries()), ofPods(file)...), ofPrograms()...)
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) { b.in(t).checkCause(c) })
	}
	t.Logf("%d causes in %s", len(all), since(begin))
}

func (b *env) checkCause(c cause) {
	begin := time.Now()
	if c.order != nil {
		b.Expect(b.machine.Order(devicePlugin.program, c.order)).To(Succeed())
		b.t.Cleanup(func() { b.Expect(b.machine.Order(devicePlugin.program, nil)).To(Succeed()) })
	}
	if c.forbids != nil {
		b.forbid(c.resource, c.forbids)
	}
	b.replaceSpec(c.spec)
	if c.spec == nil {
		b.deletePods(devicePlugin.app)
	}
	words := containAll(c.words)
	var message string
	b.Eventually(func(g Gomega) {
		condition := b.gpuReady(g)
		g.Expect(condition.Status).To(Equal(corev1.ConditionFalse))
		g.Expect(condition.Message).To(words)
		g.Expect(condition.Reason).To(ContainSubstring(c.reason))
		policy, err := b.policy()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(policy.Status.Nodes).To(HaveLen(1))
		g.Expect(policy.Status.Nodes[0].Message).To(words)
		g.Expect(b.warnings(g, begin)).To(ContainElement(words))
		message = condition.Message
	}, "2m", "200ms").Should(Succeed(), b.describe)
	b.t.Logf("after %s: %s", since(begin), message)
	text, commands := b.explained()
	b.Expect(text).To(words)
	b.Expect(commands).NotTo(BeEmpty(), text)
	for _, command := range commands {
		out, err := b.shell(command)
		b.Expect(err).NotTo(HaveOccurred(), "%s\n%s", command, out)
	}
}

// forbidding is the name of the object that keeps pods from being created.
const forbidding = "no-more"

// forbid creates the object until the end of the test.
func (b *env) forbid(resource string, object runtime.Object) {
	core := b.client.CoreV1().RESTClient()
	b.Expect(core.Post().Namespace(namespace).Resource(resource).Body(object).Do(b.t.Context()).Error()).To(Succeed())
	b.t.Cleanup(func() {
		b.Expect(core.Delete().Namespace(namespace).Resource(resource).Name(forbidding).
			Do(context.WithoutCancel(b.t.Context())).Error()).To(Succeed())
	})
}

// replaceSpec makes the spec of the policy these fields and no others.
func (b *env) replaceSpec(spec map[string]any) {
	if spec == nil {
		spec = map[string]any{}
	}
	patch, err := json.Marshal([]any{map[string]any{"op": "replace", "path": "/spec", "value": spec}})
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(b.client.CoreV1().RESTClient().Patch(types.JSONPatchType).AbsPath(policyPath, policyName).Body(patch).
		Do(b.t.Context()).Error()).To(Succeed())
}

func (b *env) deletePods(app string) {
	b.Expect(b.client.CoreV1().Pods(namespace).DeleteCollection(b.t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: "app=" + app})).To(Succeed())
}

// warnings returns the messages of the Warnings about the node since then.
func (b *env) warnings(g Gomega, begin time.Time) []string {
	events, err := b.client.CoreV1().Events(metav1.NamespaceDefault).List(b.t.Context(), metav1.ListOptions{
		FieldSelector: fmt.Sprintf("involvedObject.kind=Node,type=%s", corev1.EventTypeWarning),
	})
	g.Expect(err).NotTo(HaveOccurred())
	var found []string
	for i := range events.Items {
		if !events.Items[i].LastTimestamp.Time.Before(begin.Truncate(time.Second)) {
			found = append(found, events.Items[i].Reason+": "+events.Items[i].Message)
		}
	}
	return found
}

// explained returns what kubectl gpu explain prints about the node, and the commands of it.
func (b *env) explained() (text string, commands []string) {
	text, err := b.shell("kubectl gpu explain node/" + machineName)
	b.Expect(err).NotTo(HaveOccurred(), text)
	for line := range strings.Lines(text) {
		if command, is := strings.CutPrefix(strings.TrimSpace(line), "Run:"); is {
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	return text, commands
}

// shell runs a command as a user does, with kubectl and the plugin on the path.
func (b *env) shell(command string) (string, error) {
	path := b.t.TempDir()
	_, err := cluster.PluginCommand(b.t.Context(), repository, os.Getenv(pluginVariable), path)
	b.Expect(err).NotTo(HaveOccurred())
	cmd := exec.CommandContext(b.t.Context(), "/bin/sh", "-c", command)
	cmd.Env = []string{"KUBECONFIG=" + b.cluster.Kubeconfig(), "HOME=" + path, "PATH=" + path + ":/usr/bin:/bin"}
	out, err := cmd.CombinedOutput()
	return string(out), err
}
