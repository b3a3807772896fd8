package cluster

import (
	"path/filepath"
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
