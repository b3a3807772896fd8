package install

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/test/packaged"
	"github.com/clusterpolicy/gpu-operator/test/pinned"
)

// chartExamples are the headings of the examples in the README of the chart, in its order, each with what it installs.
var chartExamples = []renderCase{
	{name: "Install", then: func(g *WithT, objects []*unstructured.Unstructured) {
		g.Expect(manager(g, objects)["image"]).To(Equal("registry.example.com/gpu-operator:dev"))
		g.Expect(find(objects, "Job", "gpu-operator-uninstall").GetAnnotations()).
			To(HaveKeyWithValue("helm.sh/hook", "pre-delete"), "helm uninstall deletes the policy first")
	}},
	{name: "Hosts that have their own driver", spec: "driver: {enabled: false}"},
	{
		name: "A private registry", spec: "global: {registry: registry.example.com, imagePullSecrets: [registry-login]}",
		then: func(g *WithT, objects []*unstructured.Unstructured) {
			g.Expect(objects[0].GetKind()+" "+objects[0].GetName()).To(Equal("Namespace gpu-operator"), "the first command")
			secret := find(objects, "Secret", "registry-login")
			g.Expect(secret.GetNamespace()).To(Equal(namespace))
			g.Expect(field(g, secret, "type")).To(Equal("kubernetes.io/dockerconfigjson"))
			spec, _ := pod(g, objects)["spec"].(map[string]any)
			g.Expect(spec["imagePullSecrets"]).To(Equal([]any{map[string]any{"name": "registry-login"}}))
			g.Expect(manager(g, objects)["image"]).To(HavePrefix("registry.example.com/"))
		},
	},
	{
		name: "MIG", spec: "{mig: {strategy: mixed}, migManager: {config: {default: all-balanced}}}",
		then: func(g *WithT, _ []*unstructured.Unstructured) {
			g.Expect(layouts(g)).To(HaveKey("all-balanced"))
		},
	},
	{
		name: "Time-slicing", spec: "devicePlugin: {config: {name: time-slicing, default: any}}",
		then: func(g *WithT, objects []*unstructured.Unstructured) {
			g.Expect(field(g, find(objects, "ConfigMap", "time-slicing"), "data", "any")).To(MatchYAML(
				"{version: v1, sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}}"))
		},
	},
	{name: "Upgrade", then: func(g *WithT, objects []*unstructured.Unstructured) {
		g.Expect(find(objects, "Job", "gpu-operator-upgrade-crd").GetAnnotations()).
			To(HaveKeyWithValue("helm.sh/hook", "pre-upgrade"))
	}},
	{name: "Uninstall", without: true, then: func(g *WithT, objects []*unstructured.Unstructured) {
		g.Expect(objects).To(BeEmpty())
	}},
}

// layouts are the MIG layouts that the operator installs by default.
func layouts(g *WithT) map[string]any {
	text, err := os.ReadFile(repo + "/assets/mig-manager/0400_configmap.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	config, _ := field(g, only(g, string(text), ""), "data", "config.yaml").(string)
	content := struct {
		Layouts map[string]any `json:"mig-configs"`
	}{}
	g.Expect(yaml.Unmarshal([]byte(config), &content)).To(Succeed())
	return content.Layouts
}

// The programs of the examples, without a cluster: Helm and kubectl print what they would create.
const (
	helmWithoutCluster = `#!/bin/sh
verb=$1; shift
case $verb in
install) exec "$HELM" template "$@" ;;
upgrade)
  for word; do shift; [ "$word" = --reset-then-reuse-values ] || set -- "$@" "$word"; done
  exec "$HELM" template --is-upgrade "$@" ;;
esac
`
	kubectlWithoutCluster = `#!/bin/sh
"$KUBECTL" "$@" --dry-run=client --output=yaml && echo ---
`
)

var (
	exampleHeading = regexp.MustCompile(`(?m)^### (.+)$`)
	codeBlock      = regexp.MustCompile("(?ms)^```\n(.*?)^```$")
	helmFlag       = regexp.MustCompile(`(?m)(?:^|\s)(--[a-z-]+)`)
	relativeLink   = regexp.MustCompile(`\]\((\.\./[^)#]+)`)
)

// readmeExamples returns the examples of the README of the chart by their headings, and the headings in order.
func readmeExamples(g *WithT) (commands map[string]string, headings []string) {
	text, err := os.ReadFile(filepath.Join(repo, packaged.Chart, "README.md"))
	g.Expect(err).NotTo(HaveOccurred())
	for _, link := range relativeLink.FindAllSubmatch(text, -1) {
		g.Expect(filepath.Join(repo, packaged.Chart, string(link[1]))).To(BeARegularFile())
	}
	_, after, found := strings.Cut(string(text), "\n## Examples\n")
	g.Expect(found).To(BeTrue())
	section, _, found := strings.Cut(after, "\n## Values\n")
	g.Expect(found).To(BeTrue())
	commands = map[string]string{}
	parts := exampleHeading.Split(section, -1)
	for i, match := range exampleHeading.FindAllStringSubmatch(section, -1) {
		blocks := codeBlock.FindAllStringSubmatch(parts[i+1], -1)
		g.Expect(blocks).To(HaveLen(1), match[1])
		headings, commands[match[1]] = append(headings, match[1]), blocks[0][1]
	}
	g.Expect(codeBlock.FindAllString(string(text), -1)).To(HaveLen(len(headings)), "each example has a heading")
	return commands, headings
}

// Each example of the README can be pasted into a shell, with either Helm, and has its effect on the policy.
func TestTheExamplesOfTheChart(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	commands, headings := readmeExamples(g)
	var names []string
	for _, example := range chartExamples {
		names = append(names, example.name)
	}
	g.Expect(headings).To(Equal(names), "each example has a test")
	for _, pin := range []struct{ dir, module string }{{"helm", "helm.sh/helm/v4"}, {"helm3", "helm.sh/helm/v3"}} {
		helm, err := pinned.Tool(repo, pin.dir, "helm", pin.module)
		g.Expect(err).NotTo(HaveOccurred())
		for _, example := range chartExamples {
			t.Run(pin.dir+"/"+example.name, func(t *testing.T) {
				t.Parallel()
				g := NewWithT(t)
				command := commands[example.name]
				acceptsFlags(t, helm, command)
				objects, err := packaged.Decode(paste(t, helm, command))
				g.Expect(err).NotTo(HaveOccurred())
				example.checkObjects(g, objects)
			})
		}
	}
}

// acceptsFlags checks that Helm has the flags of its command in an example.
func acceptsFlags(t *testing.T, helm, command string) {
	t.Helper()
	g := NewWithT(t)
	_, own, found := strings.Cut("\n"+command, "\nhelm ")
	g.Expect(found).To(BeTrue())
	verb, flags, _ := strings.Cut(own, " ")
	help, err := exec.CommandContext(t.Context(), helm, verb, "--help").Output()
	g.Expect(err).NotTo(HaveOccurred())
	for _, flag := range helmFlag.FindAllStringSubmatch(flags, -1) {
		g.Expect(string(help)).To(MatchRegexp(`(?m)^ .*`+flag[1]+`\b`), "helm %s", verb)
	}
}

// paste runs the commands of an example in the folder of the repository, and returns what they would create.
func paste(t *testing.T, helm, command string) string {
	t.Helper()
	g, bin, home := NewWithT(t), t.TempDir(), t.TempDir()
	for name, script := range map[string]string{"helm": helmWithoutCluster, "kubectl": kubectlWithoutCluster} {
		g.Expect(os.WriteFile(filepath.Join(bin, name), []byte(script), 0o700)).To(Succeed())
	}
	kubectl, err := pinned.Tool(repo, "kubectl", "kubectl", "k8s.io/kubectl")
	g.Expect(err).NotTo(HaveOccurred())
	cmd := exec.CommandContext(t.Context(), "bash", "-eu", "-c", command)
	cmd.Dir = repo
	cmd.Env = []string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "HELM=" + helm, "KUBECTL=" + kubectl, "PASSWORD=secret", "HOME=" + home,
		"HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home,
	}
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	g.Expect(err).NotTo(HaveOccurred(), "%s", &complaint)
	return string(out)
}
