package marker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestRead(t *testing.T) {
	const present = "BOOT_ID=boot-now\nDRIVER_INSTANCE=pod-1\n"
	tests := map[string]struct {
		marker    string // No file if empty.
		container string // Content of .driver-ctr-ready; no file if empty.
		err       string
	}{
		"trusts a marker of this boot and this driver container": {
			marker: present, container: "GDS_ENABLED: false\nDRIVER_INSTANCE: pod-1\n"},
		"trusts a marker of a host driver": {
			marker: "IS_HOST_DRIVER=true\nBOOT_ID=boot-now\nDRIVER_INSTANCE=\n"},
		"trusts a marker next to a driver container that names no instance": {
			marker: "BOOT_ID=boot-now\nDRIVER_INSTANCE=since-1700000100.000000007\n", container: "GDS_ENABLED: false\n"},
		"refuses a marker that is missing": {
			err: "toolkit-ready is missing"},
		"refuses a marker of another boot": {
			marker: "BOOT_ID=boot-before\n", err: "toolkit-ready is stale: it was written in another boot of the node"},
		"refuses a marker of an earlier driver container": {
			marker: present, container: "DRIVER_INSTANCE: pod-2\n",
			err: `toolkit-ready is stale: it was written for driver instance "pod-1", now there is "pod-2"`},
		"refuses a marker of an earlier driver container that names no instance": {
			marker: "BOOT_ID=boot-now\nDRIVER_INSTANCE=since-1700000099.000000007\n", container: "GDS_ENABLED: false\n",
			err: `written for driver instance "since-1700000099.000000007", now there is "since-1700000100.000000007"`},
		"refuses a marker of a driver container that was stopped": {
			marker: present, err: `written for driver instance "pod-1", now there is ""`},
		"refuses a marker without an instance next to a driver container that has one": {
			marker: "BOOT_ID=boot-now\n", container: "DRIVER_INSTANCE: pod-2\n", err: "is stale"},
		"refuses a marker of a host driver next to a driver container that names no instance": {
			marker: "BOOT_ID=boot-now\nDRIVER_INSTANCE=\n", container: "GDS_ENABLED: false\n", err: "is stale"},
		"refuses a malformed marker": {
			marker: "BOOT_ID=$(id)\n", err: "toolkit-ready is malformed: line 1"},
		"refuses a marker that is too large": {
			marker: strings.Repeat("#", maxSize+1), err: "toolkit-ready is malformed: has 65537 bytes"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			dir := t.TempDir()
			for file, content := range map[string]string{"toolkit-ready": tc.marker, ".driver-ctr-ready": tc.container} {
				if content != "" {
					put(t, filepath.Join(dir, file), content, 100)
				}
			}
			_, err := Dir{Path: dir, BootID: "boot-now"}.Read("toolkit")
			if tc.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
		})
	}
}

// put writes a file with a modification time of so many seconds after the boot, and 7 ns.
func put(t *testing.T, path, content string, seconds int64) {
	t.Helper()
	at := time.Unix(1700000000+seconds, 7)
	NewWithT(t).Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
	NewWithT(t).Expect(os.Chtimes(path, at, at)).To(Succeed())
}

func TestWriteCreatesAMarkerThatEveryPodCanRead(t *testing.T) {
	g := NewWithT(t)
	dir := Dir{Path: filepath.Join(t.TempDir(), "not", "yet"), BootID: "boot-now"}

	g.Expect(dir.Write("driver", []Assignment{{"IS_HOST_DRIVER", "true"}}, "")).To(Succeed())

	file := filepath.Join(dir.Path, "driver-ready")
	content, err := os.ReadFile(file)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(content)).To(Equal("IS_HOST_DRIVER=true\nBOOT_ID=boot-now\nDRIVER_INSTANCE=\n"))
	info, err := os.Stat(file)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Mode()).To(Equal(os.FileMode(0o644)))
	g.Expect(os.ReadDir(dir.Path)).To(HaveLen(1), "no temporary file is left behind")
	g.Expect(dir.Read("driver")).To(HaveLen(3))

	g.Expect(dir.Remove("driver")).To(Succeed())
	g.Expect(dir.Remove("driver")).To(Succeed(), "removing a missing marker succeeds")
	g.Expect(os.ReadDir(dir.Path)).To(BeEmpty())
}

func TestWriteLeavesNothingBehindWhenItFails(t *testing.T) {
	g := NewWithT(t)
	dir := Dir{Path: t.TempDir(), BootID: "boot-now"}
	// A directory in the marker's place cannot be replaced by a file.
	g.Expect(os.MkdirAll(filepath.Join(dir.Path, "driver-ready", "x"), 0o700)).To(Succeed())

	g.Expect(dir.Write("driver", nil, "")).To(MatchError(ContainSubstring("write " + dir.Path + "/driver-ready")))

	g.Expect(os.ReadDir(dir.Path)).To(HaveLen(1))
	g.Expect(dir.Write("driver", []Assignment{{"A", "it's"}}, "")).To(MatchError(ContainSubstring("single quote")))
}

func TestBootID(t *testing.T) {
	g := NewWithT(t)
	file := filepath.Join(t.TempDir(), "boot_id")
	_, err := BootID(file)
	g.Expect(err).To(MatchError(ContainSubstring("read the boot ID")))
	g.Expect(os.WriteFile(file, []byte("\n"), 0o600)).To(Succeed())
	_, err = BootID(file)
	g.Expect(err).To(MatchError(ContainSubstring("is empty")))
	g.Expect(os.WriteFile(file, []byte("4c4c-11\n"), 0o600)).To(Succeed())
	g.Expect(BootID(file)).To(Equal("4c4c-11"))
}

func TestNamed(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Named("toolkit")).To(BeEquivalentTo("toolkit"))
	_, err := Named("drvier")
	g.Expect(err).To(MatchError(`unknown marker "drvier"; use one of ["driver" "runtime" "toolkit" "cuda" ` +
		`"plugin" "mofed" "nvidia-fs" "gdrcopy" "nvidia-peermem"]`))
}
