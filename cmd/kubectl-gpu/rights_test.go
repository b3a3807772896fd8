package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/viewer"
)

// triples returns rights as "group/resource [name] verb", sorted.
func triples(rights []viewer.Right) (all []string) {
	for _, r := range rights {
		for _, verb := range r.Verbs {
			all = append(all, fmt.Sprintf("%s/%s [%s] %s", r.Group, r.Resource, r.Name, verb))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// used returns the rights that the requests to a server need, also as triples. Names are those of the table.
func (s *apiServer) used() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, request := range s.asked {
		parts := strings.Split(strings.TrimPrefix(request, "GET /"), "/")
		group := ""
		if parts[0] == "apis" && len(parts) > 1 {
			group, parts = parts[1], parts[1:]
		}
		if len(parts) < 3 { // Discovery, and /version.
			continue
		}
		parts = parts[2:]
		if parts[0] == "namespaces" && len(parts) > 2 {
			parts = parts[2:]
		}
		resource, name, verb := parts[0], "", "list"
		switch {
		case strings.Contains(s.query[i], "watch=true"):
			verb = "watch"
		case len(parts) > 2:
			resource, verb = resource+"/"+parts[2], "get"
		case len(parts) > 1:
			verb = "get"
			if parts[1] == labels.AgentPolicyBinding || parts[1] == labels.DriverToolkitName {
				name = parts[1]
			}
		}
		all = append(all, fmt.Sprintf("%s/%s [%s] %s", group, resource, name, verb))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// everything are the objects of a cluster in which a preview reads all that it may read: OpenShift with the Prometheus
// operator, a pod with a claim, NVIDIADrivers, and a policy that names a priority class and a Secret.
func everything(t *testing.T) [][]byte {
	t.Helper()
	all, err := documents(installed(t), nil)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for _, name := range []string{
		"nvidiadrivers.nvidia.com", "proxies.config.openshift.io", "clusterversions.config.openshift.io",
		"servicemonitors.monitoring.coreos.com", "prometheusrules.monitoring.coreos.com",
	} {
		all = append(all, fmt.Appendf(nil, "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, "+
			"metadata: {name: %s}}", name))
	}
	return append(all, []byte(coreOSNode), []byte(`{apiVersion: v1, kind: Pod, metadata: {name: claimant, namespace: a},
		spec: {resourceClaims: [{name: one, resourceClaimName: nic}], containers: [{name: c, image: a}]}}`),
		[]byte(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: `+
			labels.AgentPolicyBinding+`}}`))
}

// namingSpec names a priority class and a Secret.
const namingSpec = `{driver: {version: "580.1", secretEnv: token}, daemonsets: {priorityClassName: high}}`

// secrets are in no role: previews do without.
const secrets = "/secrets [] get"

// Each command asks for what the table has, and for nothing else, and its help names the resources.
func TestRightsOfCommands(t *testing.T) {
	crashing := bytes.Replace(gpuNode("a", "False"), []byte("reason: X"), []byte("reason: CrashLoopBackOff"), 1)
	nodesAndPods := append(operandPods(), crashing, []byte(`{apiVersion: v1, kind: Pod,
		metadata: {name: claimant, namespace: team-a, uid: u}, spec: {resourceClaims: [{name: one, resourceClaimName: nic}],
		containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}}`))
	tests := map[string]struct {
		objects [][]byte
		// lines are what is run, and in what a file on standard input has.
		lines []string
		in    string
		help  string
	}{
		"status":  {objects: nodesAndPods, lines: []string{"status", "status --watch"}},
		"explain": {objects: nodesAndPods, lines: []string{"explain a", "explain pod/claimant"}},
		"top": {objects: everything(t), lines: []string{
			"top nodes", "top pods -l a=b",
		}},
		"logs":    {objects: nodesAndPods, lines: []string{"logs a driver"}},
		"version": {objects: append(versionObjects(), operatorDeployment("own:v1.2.3", "")), lines: []string{"version"}},
		"plan":    {objects: everything(t), lines: []string{"plan -f -"}, in: edit(namingSpec)},
		"diff":    {objects: everything(t), lines: []string{"diff -f -"}, in: edit(namingSpec), help: "plan"},
		"render":  {objects: everything(t), lines: []string{"render -f -"}, in: edit(namingSpec), help: "plan"},
		"mirror":  {objects: everything(t), lines: []string{"mirror list -f -"}, in: edit(namingSpec), help: "plan"},
	}
	NewWithT(t).Expect(viewer.Commands()).To(HaveLen(len(tests)))
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := newAPIServer(t, test.objects...)
			var watches sync.WaitGroup
			watches.Add(3)
			server.refuses = func(r *http.Request) bool {
				if r.URL.Query().Get("watch") == "" {
					return false
				}
				watches.Done()
				watches.Wait() // The first that ends, ends the others.
				return true
			}
			for _, line := range test.lines {
				got := kubectlGPU(test.in, append(strings.Fields(line), "--kubeconfig", server.kubeconfig(t), "--context", "c")...)
				g.Expect(got.errOut).NotTo(ContainSubstring("usage."), line)
			}
			want := triples(viewer.Of(name))
			if test.in != "" {
				want = append(want, secrets)
			}
			g.Expect(server.used()).To(ConsistOf(want))
			command := name
			if test.help != "" {
				command = test.help
			}
			if command == "top" {
				command = "top pods"
			}
			help := strings.ToLower(kubectlGPU("", append(strings.Fields(command), "--help")...).out)
			for _, right := range viewer.Of(name) {
				g.Expect(help).To(ContainSubstring(right.Resource))
			}
		})
	}
}

// The role that is shipped has the rights of the commands, each and no other, and aggregates to no role.
func TestTheRoleHasTheRightsOfTheCommands(t *testing.T) {
	g, role := NewWithT(t), rbacv1.ClusterRole{}
	text, err := os.ReadFile("../../config/rbac/viewer.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(yaml.UnmarshalStrict(text, &role)).To(Succeed())
	g.Expect(role.Name).To(Equal(viewer.ClusterRole))
	g.Expect(role.Labels).To(Equal(map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "false"}))
	g.Expect(role.AggregationRule).To(BeNil())
	var granted, declared []viewer.Right
	for _, rule := range role.Rules {
		g.Expect(rule.NonResourceURLs).To(BeEmpty())
		g.Expect(rule.APIGroups).To(HaveLen(1))
		for _, resource := range rule.Resources {
			granted = append(granted, viewer.Right{
				Group: rule.APIGroups[0], Resource: resource, Verbs: rule.Verbs, Name: strings.Join(rule.ResourceNames, " "),
			})
		}
	}
	for _, command := range viewer.Commands() {
		declared = append(declared, viewer.Of(command)...)
	}
	declared = slices.DeleteFunc(declared, func(r viewer.Right) bool { return r.Resource == "pods/proxy" })
	g.Expect(triples(granted)).To(Equal(triples(declared)))
	for _, right := range granted {
		g.Expect(right.Verbs).To(HaveEach(BeElementOf("get", "list", "watch")), right.Resource)
		g.Expect(right.Resource).NotTo(Or(HavePrefix("secrets"), ContainSubstring("*")))
	}
}

// A missing right is answered with the role and how to bind it, once, by the commands that the role is for.
func TestMissingRightsNameTheRole(t *testing.T) {
	binding := func(command string) string {
		but := map[string]string{"top": ", but not to get pods/proxy, which is to be granted apart"}[command]
		return "The ClusterRole gpu-operator-viewer has the rights that kubectl gpu " + command + " needs" + but + ". An " +
			"administrator binds it to the user that the error names:\n" +
			"  kubectl create clusterrolebinding gpu-operator-viewer-USER --clusterrole=gpu-operator-viewer --user=USER\n"
	}
	const refused = "Error from server (Forbidden): refused\n"
	objects := [][]byte{operandPods()[0], gpuNode("a", "True"), []byte(`{apiVersion: v1, kind: Pod, metadata: {
		name: exporter, namespace: gpus}, spec: {nodeName: a}, status: {phase: Running}}`)}
	proxies := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/proxy/metrics") }
	for line, test := range map[string]struct {
		// all requests are refused, or else some.
		all  bool
		some func(*http.Request) bool
		code int
		want string
	}{
		"status --not-ready":      {all: true, code: 1, want: refused + binding("status")},
		"explain a":               {all: true, code: 1, want: refused + binding("explain")},
		"logs a":                  {all: true, code: 1, want: refused + binding("logs")},
		"version":                 {all: true, code: 1, want: refused + binding("version")},
		"top pods":                {all: true, code: 1, want: refused + binding("top")},
		"plan":                    {all: true, code: 1, want: "reading nodes: " + refused + binding("plan")},
		"diff -f -":               {all: true, code: 2, want: "reading nodes: " + refused + binding("diff")},
		"render":                  {all: true, code: 1, want: "reading nodes: " + refused + binding("render")},
		"mirror list":             {all: true, code: 1, want: "reading nodes: " + refused + binding("mirror")},
		"convert --to node-pools": {all: true, code: 1, want: "reading clusterpolicies.nvidia.com: " + refused},
		"top nodes": {some: proxies, code: 1, want: "the usage of 1 node is unknown:\n  a: pod exporter does not answer: " +
			refused + binding("top")},
		"status": {some: func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/pods") },
			want: "what is free is unknown: " + refused + binding("status")},
		"status nowhere": {code: 1, want: "no node nowhere has the label nvidia.com/gpu.present=true: see kubectl get " +
			"nodes --show-labels\n"},
	} {
		t.Run(line, func(t *testing.T) {
			server := newAPIServer(t, objects...)
			server.refused, server.refuses = test.all, test.some
			got := kubectlGPU(edit(installedSpec),
				append(strings.Fields(line), "--kubeconfig", server.kubeconfig(t), "--context", "c")...)
			g := NewWithT(t)
			g.Expect(got.code).To(Equal(test.code))
			g.Expect(got.errOut).To(Equal("kubectl gpu: " + test.want))
		})
	}
}

// Without the right to read Secrets a plan notes those that the policy names. Other objects are needed.
func TestPlanWithoutTheRightToSecrets(t *testing.T) {
	for resource, test := range map[string]struct {
		code int
		out  string
		err  string
	}{
		"secrets":         {0, "Secret token was not read: it counts as existing", ""},
		"priorityclasses": {1, "", "reading priorityclass: Error from server (Forbidden)"},
	} {
		server := newAPIServer(t, everything(t)...)
		server.refuses = func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/"+resource) }
		got := kubectlGPU(edit(namingSpec), "plan", "-f", "-", "--kubeconfig", server.kubeconfig(t), "--context", "c")
		g := NewWithT(t)
		g.Expect(got.code).To(Equal(test.code), got.errOut)
		g.Expect(got.out).To(ContainSubstring(test.out))
		g.Expect(got.errOut).To(ContainSubstring(test.err))
	}
}
