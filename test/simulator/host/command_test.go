package host

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// help is gpu-node's help for a command with all types of flags.
const help = `Prove the driver, --dir is below.

Flags:
      --attempt-timeout duration    longest time of one attempt, with a unit (default 1m0s)
      --dir string                  directory of the markers (default "/run/nvidia/validations")
      --driver-container            a driver container runs on this node
      --driver-install-dir string   the driver's root file system, on the host (default "/run/nvidia/driver")
  -h, --help                        help for driver
      --marker string               part to wait for (default "driver")
      --sys-root string             sysfs (default "/sys")
`

func TestTranslate(t *testing.T) {
	files := filesystem{root: "/c", mounts: []mount{
		{"/run/nvidia", "/node/run/nvidia"}, {"/run/nvidia/validations", "/node/v"}, {"/sys", "/node/sys"}, {
			"/copy", "/empty",
		},
	}}
	preset := []string{"--dir=/node/v", "--sys-root=/node/sys"}
	tests := map[string]struct{ own, want []string }{
		"paths by default": {want: preset},
		"an explicit path": {
			own: []string{"--dir=/run/nvidia/x"}, want: []string{
				"--dir=/run/nvidia/x", "--dir=/node/run/nvidia/x", "--sys-root=/node/sys",
			}},
		"the last of several": {
			own: []string{"--dir=/copy", "--dir", "/sys/y"}, want: []string{
				"--dir=/copy", "--dir", "/sys/y", "--dir=/node/sys/y", "--sys-root=/node/sys",
			}},
		"a path that is not mounted is in the container": {
			own: []string{"--dir=/runner"}, want: []string{"--dir=/runner", "--dir=/c/runner", "--sys-root=/node/sys"}},
		"a positional path": {
			own: []string{"copy", "/copy/to"}, want: append([]string{"copy", "/empty/to"}, preset...)},
		"neither switches nor paths on the host": {
			own:  []string{"--driver-container", "--driver-install-dir=/opt", "--marker=toolkit"},
			want: append([]string{"--driver-container", "--driver-install-dir=/opt", "--marker=toolkit"}, preset...)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(translate(tc.own, parseHelp(help), files)).To(Equal(tc.want))
		})
	}
}

func TestParentOfMountsContainsThem(t *testing.T) {
	g := NewWithT(t)
	root, node := t.TempDir(), t.TempDir()
	g.Expect(os.MkdirAll(filepath.Join(node, "etc"), 0o700)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(node, "etc", "os-release"), []byte("ID=x"), 0o600)).To(Succeed())
	files := filesystem{root: root, mounts: []mount{
		{"/host/etc/os-release", filepath.Join(node, "etc", "os-release")}, {"/data", node}, {"/data/sub", t.TempDir()},
	}}
	g.Expect(files.link()).To(Succeed())
	g.Expect(os.ReadFile(filepath.Join(files.locate("/host"), "etc", "os-release"))).To(BeEquivalentTo("ID=x"))
	g.Expect(filepath.Join(node, "sub")).NotTo(BeAnExistingFile(), "a mount in a mount changes no volume")
	g.Expect(files.locate("/data/sub/file")).To(Equal(files.mounts[2].source + "/file"))
}

func TestOwnMountReplacesTheDefaultAtItsPath(t *testing.T) {
	g := NewWithT(t)
	own := t.TempDir()
	files := filesystem{root: t.TempDir(), mounts: []mount{{"/proc", t.TempDir()}, {"/sys", t.TempDir()}}}
	files.add(mount{"/sys", own})
	g.Expect(files.link()).To(Succeed())
	g.Expect(os.Readlink(filepath.Join(files.root, "sys"))).To(Equal(own))
	g.Expect(files.locate("/sys/file")).To(Equal(own + "/file"))
	g.Expect(filepath.Join(files.root, "proc")).To(BeADirectory(), "other defaults are kept")
}

func TestVolumeOfTheDownwardAPIHasFields(t *testing.T) {
	g := NewWithT(t)
	h := &Host{dir: t.TempDir()}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "uid", Annotations: map[string]string{"example.com/key": "value"}},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "info", VolumeSource: corev1.VolumeSource{
			DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{{
				Path: "file", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['example.com/key']"},
			}}},
		}}}},
	}
	dir, err := h.volumes(t.Context(), pod).source("info")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.ReadFile(filepath.Join(dir, "file"))).To(BeEquivalentTo("value"))
}
