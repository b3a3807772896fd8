package main

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/gomega"
)

// fakeTool prints how it is called.
const fakeTool = "#!/bin/sh\necho \"$(basename $0) $*\"\n"

// fakeTools are the programs that load.sh calls, beside those of every system.
var fakeTools = map[string]string{
	"kubectl": "#!/bin/sh\ncase $1 in config) [ -n \"$CONTEXT\" ] && echo \"$CONTEXT\" ;; " +
		"*) [ \"$NODES\" != down ] && printf '%s' \"$NODES\" ;; esac\n",
	"helm": fakeTool + "exit 1\n", "kind": fakeTool, "k3d": fakeTool, "minikube": fakeTool, "k3s": fakeTool,
	"ctr": fakeTool, "docker": fakeTool,
	"nerdctl": fakeTool, "sudo": "#!/bin/sh\necho sudo\nexec \"$@\"\n", "id": "#!/bin/sh\necho ${USER_ID:-0}\n",
	"hostname": "#!/bin/sh\necho box\n",
}

// A node of each kind of cluster, as the template of load.sh prints it.
const (
	onContainerd = "box - containerd://2.1.4 -\n"
	onDocker     = "box - docker://29.0.1 -\n"
	onK3s        = "box k3s://box containerd://2.1.4-k3s1 -\n"
	ofKind       = "gpu-control-plane kind://docker/gpu/gpu-control-plane containerd://2.1.4 -\n"
)

var loads = []struct {
	name, context, nodes string
	variables            []string
	// way is what is detected, command how the archive is loaded; with complaint both fail instead.
	way, command, complaint string
}{
	{"kind", "kind-gpu", ofKind, nil, "kind", "kind load image-archive a.tar --name gpu", ""},
	{"kind, another context", "prod", ofKind + strings.ReplaceAll(ofKind, "control-plane", "worker"), nil,
		"kind", "kind load image-archive a.tar --name gpu", ""},
	{"kind by LOAD", "kind-a-b", onContainerd, []string{"LOAD=kind"},
		"kind", "kind load image-archive a.tar --name a-b", ""},
	{"k3d", "k3d-gpu", "k3d-a-b-server-0 k3s://k3d-a-b-server-0 containerd://2.1.4-k3s1 -\n", nil,
		"k3d", "k3d image import a.tar --cluster a-b", ""},
	{"k3d, an agent first", "x", "k3d-gpu-agent-12 k3s://k3d-gpu-agent-12 containerd://2.1.4-k3s1 -\n", nil,
		"k3d", "k3d image import a.tar --cluster gpu", ""},
	{"minikube", "x", "minikube - docker://29.0.1 gpu\n", nil, "minikube", "minikube image load a.tar --profile gpu", ""},
	{"minikube by LOAD", "gpu", onDocker, []string{"LOAD=minikube"},
		"minikube", "minikube image load a.tar --profile gpu", ""},
	{"k3s", "default", onK3s, nil, "k3s", "k3s ctr --namespace k8s.io images import a.tar", ""},
	{"k3s, not as root", "default", onK3s, []string{"USER_ID=1000"},
		"k3s", "sudo\nk3s ctr --namespace k8s.io images import a.tar", ""},
	{"containerd", "kubernetes-admin@kubernetes", onContainerd, nil, "containerd",
		"ctr --address /run/containerd/containerd.sock --namespace k8s.io images import a.tar", ""},
	{"containerd of another node", "x", "other - containerd://2.1.4 -\n",
		[]string{"LOAD=containerd", "CONTAINERD_ADDRESS=/x.sock", "USER_ID=1000"}, "containerd",
		"sudo\nctr --address /x.sock --namespace k8s.io images import a.tar", ""},
	{"docker", "x", onDocker, nil, "docker", "docker load --input a.tar", ""},
	{"Docker Desktop", "docker-desktop", "docker-desktop - docker://29.0.1 -\n", []string{"CONTAINER_TOOL=nerdctl"},
		"docker", "nerdctl load --input a.tar", ""},
	{"Rancher Desktop", "rancher-desktop", "lima k3s://lima docker://29.0.1 -\n", nil,
		"docker", "docker load --input a.tar", ""},
	{"OrbStack", "orbstack", "orbstack - docker://29.0.1 -\n", nil, "docker", "docker load --input a.tar", ""},

	{name: "another machine", context: "x", nodes: "n1 aws:///a/i-1 containerd://2.1.4 -\n",
		complaint: "node n1 is not this machine alone: set REGISTRY= to a registry that the nodes pull from, or LOAD="},
	{name: "a second node", context: "x", nodes: onContainerd + "n2 - containerd://2.1.4 -\n",
		complaint: "node box is not this machine alone"},
	{name: "another runtime", context: "x", nodes: "box - cri-o://1.36.0 -\n",
		complaint: "the container runtime cri-o://1.36.0, which no image is loaded into: set REGISTRY="},
	{name: "another LOAD", context: "x", nodes: onContainerd, variables: []string{"LOAD=podman"},
		complaint: "LOAD=podman is not known: set REGISTRY="},
	{name: "no context", nodes: onContainerd, complaint: "no current context: kubectl config use-context NAME"},
	{name: "no answer", context: "x", nodes: "down", complaint: "the nodes of context x cannot be listed"},
	{name: "no node", context: "x", complaint: "the cluster of context x has no node"},
}

// installFakes returns a folder with the fake tools.
func installFakes(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	for name, script := range fakeTools {
		NewWithT(t).Expect(os.WriteFile(filepath.Join(bin, name), []byte(script), 0o700)).To(Succeed())
	}
	return bin
}

func TestAnImageIsLoadedIntoEachKindOfCluster(t *testing.T) {
	bin := installFakes(t)
	for _, row := range loads {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			variables := append(row.variables, "PATH="+bin+":"+os.Getenv("PATH"), "CONTEXT="+row.context, "NODES="+row.nodes)
			for wanted, args := range map[string][]string{row.way: {"way"}, row.command: {"load", "a.tar"}} {
				cmd := exec.CommandContext(t.Context(), "./load.sh", args...)
				cmd.Env = variables
				out, err := cmd.CombinedOutput()
				if row.complaint != "" {
					g.Expect(err).To(HaveField("ExitCode()", 2))
					g.Expect(string(out)).To(And(HavePrefix("make up: "), ContainSubstring(row.complaint)))
					continue
				}
				g.Expect(err).NotTo(HaveOccurred(), "%s", out)
				g.Expect(string(out)).To(Equal(wanted + "\n"))
			}
		})
	}
}

// Nothing is built where the image would not get to the cluster.
func TestUpFailsBeforeItBuilds(t *testing.T) {
	bin := installFakes(t)
	for argument, complaint := range map[string]string{
		"LOAD=podman":         "make up: LOAD=podman is not known",
		"REGISTRY=a.b/c":      "IMAGE_TAR is loaded, not pushed: leave out IMAGE_TAR or REGISTRY",
		"KUBECTL=/no/kubectl": "make up: KUBECONFIG has no current context",
	} {
		t.Run(argument, func(t *testing.T) {
			g := NewWithT(t)
			cmd := exec.CommandContext(t.Context(), "make", "-C", "../..", "up", "IMAGE_TAR=a.tar", argument)
			cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "CONTEXT=x", "NODES="+onContainerd)
			out, err := cmd.CombinedOutput()
			g.Expect(err).To(HaveField("ExitCode()", 2))
			g.Expect(string(out)).To(And(ContainSubstring(complaint), Not(ContainSubstring("Building"))))
		})
	}
}

// A cluster that the image is not loaded into gets it from a registry. Helm, which is played, fails; what is to be done
// is then printed.
func TestUpPushesWhatHelmInstalls(t *testing.T) {
	g, bin := NewWithT(t), installFakes(t)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	cmd := exec.CommandContext(t.Context(), "make", "-C", "../..", "up", "REGISTRY="+host+"/gpu", "BASE_IMAGE=scratch",
		"HELM="+filepath.Join(bin, "helm"), "OPERATOR_NAMESPACE=gpus", "TIMEOUT=7m", "ARGS=--set psa.enabled=true")
	cmd.Env = append(os.Environ(), "KUBECONFIG=/nowhere", "PATH="+bin+":"+os.Getenv("PATH"), "NODES=down")
	out, err := cmd.CombinedOutput()
	g.Expect(err).To(HaveField("ExitCode()", 2))
	repository, err := name.NewRepository(host + "/gpu/gpu-operator")
	g.Expect(err).NotTo(HaveOccurred())
	tags, err := remote.List(repository)
	g.Expect(err).NotTo(HaveOccurred(), "%s", out)
	g.Expect(tags).To(HaveExactElements(MatchRegexp("^dev-[0-9a-f]{12}$")))
	g.Expect(string(out)).To(And(ContainSubstring("\nhelm upgrade --install gpu-operator config/helm/gpu-operator "+
		"--namespace gpus --create-namespace --wait --timeout 7m --set operator.image="+repository.Tag(tags[0]).Name()+
		" --set psa.enabled=true\n"), ContainSubstring("remove all with make down")))
}
