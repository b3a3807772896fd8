package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// The programs in KUBEBUILDER_ASSETS replace those that are built, unless a release is named.
func TestAssetsReplaceEtcdAndTheAPIServer(t *testing.T) {
	t.Setenv("KUBEBUILDER_ASSETS", "/assets")
	root, err := filepath.Abs("../..")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for _, test := range []struct{ version, program, folder string }{
		{"", "etcd", "/assets"},
		{"", "kube-apiserver", "/assets"},
		{"", "kube-scheduler", filepath.Join(root, ".cache", "controlplane")},
		{Newest, "kube-apiserver", filepath.Join(root, ".cache", "controlplane")},
		{Oldest, "etcd", filepath.Join(root, ".cache", "controlplane")},
		{Next, "kube-apiserver", filepath.Join(root, ".cache", "controlplane")},
	} {
		t.Run(test.version+" "+test.program, func(t *testing.T) {
			g := NewWithT(t)
			rel, err := findRelease(root, test.version)
			g.Expect(err).NotTo(HaveOccurred())
			program := rel.program(test.program)
			g.Expect(program).To(HavePrefix(test.folder))
			g.Expect(filepath.Base(program)).To(Equal(test.program))
		})
	}
}

// Each pinned release is found by its name and by its version, and has programs of its own.
func TestPinnedReleases(t *testing.T) {
	g := NewWithT(t)
	root, err := filepath.Abs("../..")
	g.Expect(err).NotTo(HaveOccurred())
	folders := map[string]bool{}
	for name, folder := range map[string]string{Newest: ".", Oldest: "oldest", Next: "next"} {
		rel, err := findRelease(root, name)
		g.Expect(err).NotTo(HaveOccurred())
		text, err := os.ReadFile(filepath.Join(root, "test/controlplane", folder, "go.mod"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(strings.Fields(string(text))).To(ContainElements("k8s.io/kubernetes", rel.version), name)
		folders[rel.dir] = true
		same, err := findRelease(root, rel.version)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(same.dir).To(Equal(rel.dir))
	}
	g.Expect(folders).To(HaveLen(3))
	_, err = findRelease(root, "v1.2.3")
	g.Expect(err).To(MatchError(And(ContainSubstring(`no release of Kubernetes is pinned as "v1.2.3"`),
		ContainSubstring("next (v1."))))
}

// Tests about all releases run on that of the variable alone, and on no unsupported one without it.
func TestReleases(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("KUBERNETES_VERSION", "")
	g.Expect(Releases()).To(Equal([]string{"newest", "oldest"}))
	t.Setenv("KUBERNETES_VERSION", "next")
	g.Expect(Releases()).To(Equal([]string{"next"}))
}
