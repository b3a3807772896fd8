package install

import (
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
	"github.com/clusterpolicy/gpu-operator/test/pinned"
)

// published is a release in a registry.
type published struct {
	*registry
	// path is the path in the registry, dist the folder with the files, image the operator's image by its digest.
	path, dist, image string
}

// TestAReleaseInstallsFromItsRegistry makes a release twice, pushes it, and uses what the registry has: the programs
// of both architectures are inspected, and the manager of this one makes nodes ready with the chart, by both releases
// of Helm, and with install.yaml, by kubectl.
func TestAReleaseInstallsFromItsRegistry(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	r := &published{registry: startRegistry(t), path: "gpu", dist: filepath.Join(t.TempDir(), "dist")}
	again := filepath.Join(t.TempDir(), "again")
	r.make(again)
	r.make(r.dist, "PUSH=true")
	r.checkFiles(again)
	index, digest := r.manifest(r.path+"/gpu-operator", "v"+packaged.ReleaseVersion)
	r.image = r.host + "/" + r.path + "/gpu-operator@" + digest
	manager := r.checkArchitectures(index)
	r.checkBundle()

	e := newEnv(t, 2)
	e.binary, e.variables = manager, []string{"OPERATOR_IMAGE=" + r.image}
	for name, helm := range map[string]packaged.HelmFunc{"Helm 4": packaged.Helm, "Helm 3": packaged.Helm3} {
		t.Run(name, func(t *testing.T) {
			e := e.in(t)
			e.tool.Release = helm
			defer e.uninstall(namespace)
			e.helm("install", release,
				"oci://"+r.host+"/"+r.path+"/charts/gpu-operator", "--version", packaged.ReleaseVersion, "--plain-http",
				"--create-namespace")
			e.readyWith(r.image)
		})
	}
	t.Run("kubectl", func(t *testing.T) {
		e := e.in(t)
		e.kubectl("apply", "-f", filepath.Join(r.dist, "install.yaml"))
		e.kubectl("apply", "-f", filepath.Join(repo, "config/samples/clusterpolicy.yaml"))
		e.readyWith(r.image)
		e.stop()
	})
}

// make runs make release.
func (r *published) make(dist string, args ...string) {
	r.t.Helper()
	runMake(r.t.Context(), r.WithT, nil, append([]string{
		"release", "VERSION=v" + packaged.ReleaseVersion, "REGISTRY=" + r.host + "/" + r.path, "DIST=" + dist,
		// The base image is in a registry that tests do not reach.
		"BASE_IMAGE=scratch",
		// The others take minutes to build.
		"PLUGIN_PLATFORMS=linux/amd64",
	}, args...)...)
}

// checkFiles checks that both releases have the same files, and the checksums of all.
func (r *published) checkFiles(again string) {
	r.t.Helper()
	sums := func(dir string) string {
		text, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
		r.Expect(err).NotTo(HaveOccurred())
		return string(text)
	}
	r.Expect(sums(r.dist)).To(Equal(sums(again)), "the same sources make the same release")
	entries, err := os.ReadDir(r.dist)
	r.Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
		content, err := os.ReadFile(filepath.Join(r.dist, entry.Name()))
		r.Expect(err).NotTo(HaveOccurred())
		r.Expect(string(content)).NotTo(ContainSubstring("IMAGE-NOT-SET"), entry.Name())
		if entry.Name() != "SHA256SUMS" {
			r.Expect(sums(r.dist)).To(ContainSubstring(fmt.Sprintf("%x  %s\n", sha256.Sum256(content), entry.Name())))
		}
	}
	r.Expect(names).To(ConsistOf("SHA256SUMS", "images.txt", "RELEASE_NOTES.md", "install.yaml", "admission.yaml",
		"gpu-operator-"+packaged.ReleaseVersion+".tgz", "gpu-operator.oci.tar", "gpu-operator-bundle.oci.tar",
		"gpu-operator-catalog.oci.tar", "gpu-operator-amd64.cdx.json", "gpu-operator-arm64.cdx.json",
		"gpu.yaml", "kubectl-gpu-linux-amd64.tar.gz"))
	r.checkPlugin()
}

// checkPlugin checks the manifest of the plugin by krew's own rules, and that its checksums are those of the archives.
func (r *published) checkPlugin() {
	r.t.Helper()
	check, err := pinned.Tool(repo, "krew", "validate-krew-manifest", "sigs.k8s.io/krew")
	r.Expect(err).NotTo(HaveOccurred())
	manifest := filepath.Join(r.dist, "gpu.yaml")
	out, err := exec.CommandContext(r.t.Context(), check, "-manifest="+manifest, "-skip-install").CombinedOutput()
	r.Expect(err).NotTo(HaveOccurred(), string(out))
	text, err := os.ReadFile(manifest)
	r.Expect(err).NotTo(HaveOccurred())
	const file = "kubectl-gpu-linux-amd64.tar.gz"
	content, err := os.ReadFile(filepath.Join(r.dist, file))
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(string(text)).To(MatchRegexp(
		`uri: https://\S+/releases/download/v%s/%s\n\s+sha256: %x\n\s+bin: kubectl-gpu\n`,
		packaged.ReleaseVersion, file, sha256.Sum256(content)))
}

// checkArchitectures checks the programs in the image of each architecture, and returns the manager of this one.
func (r *published) checkArchitectures(index manifest) (manager string) {
	r.t.Helper()
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	r.Expect(index.Manifests).To(HaveLen(len(machines)))
	for _, one := range index.Manifests {
		arch := one.Platform.Architecture
		image, _ := r.manifest(r.path+"/gpu-operator", one.Digest)
		dir, config := r.unpack(r.path+"/gpu-operator", image)
		r.Expect(config).To(And(HaveKeyWithValue("os", "linux"), HaveKeyWithValue("architecture", arch)))
		for _, program := range []string{"gpu-operator", "gpu-node", "gpu-node-cuda", "kubectl-gpu"} {
			path := filepath.Join(dir, "usr/bin", program)
			file, err := elf.Open(path)
			r.Expect(err).NotTo(HaveOccurred())
			r.Expect(file.Machine).To(Equal(machines[arch]), "%s for %s", program, arch)
			r.Expect(file.Close()).To(Succeed())
			if arch != runtime.GOARCH || program == "gpu-node-cuda" {
				continue // gpu-node-cuda needs a C library.
			}
			out, err := exec.CommandContext(r.t.Context(), path, "--version").Output()
			r.Expect(err).NotTo(HaveOccurred())
			r.Expect(strings.TrimSpace(string(out))).To(HaveSuffix(" version v" + packaged.ReleaseVersion))
		}
		if arch == runtime.GOARCH {
			manager = filepath.Join(dir, "usr/bin/gpu-operator")
		}
	}
	r.Expect(manager).NotTo(BeEmpty())
	return manager
}

// checkBundle checks that the catalogue leads to the bundle, and the bundle to the image, each by digest.
func (r *published) checkBundle() {
	r.t.Helper()
	const path = "gpu-operator-bundle"
	image, digest := r.manifest(r.path+"/"+path, "v"+packaged.ReleaseVersion)
	dir, _ := r.unpack(r.path+"/"+path, image)
	opened, err := packaged.OpenBundle(dir)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(opened.CSV.Metadata.Name).To(Equal("gpu-operator.v" + packaged.ReleaseVersion))
	r.Expect(opened.CSV.Spec.Install.Spec.Deployments[0].Spec.Template.Spec.Containers[0].Image).To(Equal(r.image))

	index, _ := r.manifest(r.path+"/gpu-operator-catalog", "v"+packaged.ReleaseVersion)
	r.Expect(index.Manifests).To(HaveLen(2))
	for _, one := range index.Manifests {
		image, _ := r.manifest(r.path+"/gpu-operator-catalog", one.Digest)
		dir, config := r.unpack(r.path+"/gpu-operator-catalog", image)
		r.Expect(config["config"]).To(HaveKeyWithValue("Labels",
			HaveKeyWithValue("operators.operatorframework.io.index.configs.v1", "/configs")))
		text, err := os.ReadFile(filepath.Join(dir, "configs/gpu-operator/catalog.yaml"))
		r.Expect(err).NotTo(HaveOccurred())
		var last map[string]any
		for document := range strings.SplitSeq(string(text), "---\n") {
			r.Expect(yaml.Unmarshal([]byte(document), &last)).To(Succeed())
		}
		r.Expect(last).To(And(HaveKeyWithValue("schema", "olm.bundle"), HaveKeyWithValue("name", opened.CSV.Metadata.Name),
			HaveKeyWithValue("image", r.host+"/"+r.path+"/"+path+"@"+digest)))
	}
}

// readyWith checks that the Deployment has the image, runs the manager, and waits until the nodes are ready and the
// helper containers of the operands have the image too.
func (e *env) readyWith(image string) {
	e.t.Helper()
	mark, deployment := e.mark(), &appsv1.Deployment{}
	e.Expect(e.client.Get(e.t.Context(), client.ObjectKey{Namespace: namespace, Name: "gpu-operator"},
		deployment)).To(Succeed())
	e.Expect(deployment.Spec.Template.Spec.Containers).To(ConsistOf(HaveField("Image", image)))
	e.run(namespace)
	e.awaitReady()
	sets := &appsv1.DaemonSetList{}
	e.Expect(e.client.List(e.t.Context(), sets, client.InNamespace(namespace))).To(Succeed())
	e.Expect(sets.Items).To(ContainElement(HaveField("Spec.Template.Spec.InitContainers",
		ContainElement(HaveField("Image", image)))))
	e.noneForbidden(namespace, mark)
}

// kubectl runs the kubectl that test/tools/kubectl pins, with all permissions.
func (e *env) kubectl(args ...string) {
	e.t.Helper()
	binary, err := pinned.Tool(repo, "kubectl", "kubectl", "k8s.io/kubectl")
	e.Expect(err).NotTo(HaveOccurred())
	cmd := exec.CommandContext(e.t.Context(), binary, args...)
	cmd.Env = []string{"KUBECONFIG=" + e.cluster.Kubeconfig(), "HOME=" + e.tool.Home}
	out, err := cmd.CombinedOutput()
	e.Expect(err).NotTo(HaveOccurred(), "%s", out)
}
