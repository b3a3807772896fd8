package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	. "github.com/onsi/gomega"
)

// most is the largest unpacked size of the image's files.
const most = 64 << 20

// rootfs is what build.sh makes from the build context, as .dockerignore filters it.
var rootfs string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "gpu-operator-image-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		rootfs = filepath.Join(dir, "rootfs")
		if err := buildFromContext(filepath.Join(dir, "context"), rootfs); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// buildFromContext builds as the Dockerfile does.
func buildFromContext(context, rootfs string) error {
	if err := copyContext("../..", context); err != nil {
		return fmt.Errorf("copying the build context: %w", err)
	}
	build := exec.Command(filepath.Join(context, "config/image/build.sh"), "rootfs", rootfs)
	build.Env = append(os.Environ(), "VERSION=v1.2.3-test")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build.sh fails in the build context that .dockerignore leaves: %w\n%s", err, out)
	}
	return nil
}

// copyContext copies the build context, as .dockerignore filters it. It supports the patterns that this file uses:
// all is excluded (*), except for directories and files named with !, and from these tests and test data are
// excluded.
func copyContext(root, to string) error {
	text, err := os.ReadFile(filepath.Join(root, ".dockerignore"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		kept, isKept := strings.CutPrefix(strings.TrimSpace(line), "!")
		if !isKept {
			continue
		}
		err := filepath.WalkDir(filepath.Join(root, kept), func(path string, entry os.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && entry.Name() == "testdata":
				return filepath.SkipDir
			case entry.IsDir() || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			return copyFile(path, filepath.Join(to, strings.TrimPrefix(path, root)))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, content, info.Mode()))
}

// built is an image as read from its archive, without the library that wrote it.
type built struct {
	config struct {
		Architecture, OS string
		Config           struct {
			User       string
			Entrypoint []string
			Cmd        []string
			Labels     map[string]string
		}
	}
	layers []map[string]*tar.Header
	files  map[string][]byte
	name   string
	// packed is the size of the archive.
	packed int
}

type descriptor struct {
	Digest      string
	Annotations map[string]string
}

func read(g *WithT, archive string) built {
	whole, err := os.ReadFile(archive)
	g.Expect(err).NotTo(HaveOccurred())
	_, blobs := unpack(g, whole)
	g.Expect(string(blobs["oci-layout"])).To(MatchJSON(`{"imageLayoutVersion": "1.0.0"}`))
	blob := func(d descriptor) []byte {
		content, there := blobs["blobs/"+strings.Replace(d.Digest, ":", "/", 1)]
		g.Expect(there).To(BeTrue(), d.Digest)
		g.Expect(fmt.Sprintf("sha256:%x", sha256.Sum256(content))).To(Equal(d.Digest))
		return content
	}
	var index struct{ Manifests []descriptor }
	g.Expect(json.Unmarshal(blobs["index.json"], &index)).To(Succeed())
	g.Expect(index.Manifests).To(HaveLen(1))
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	g.Expect(json.Unmarshal(blob(index.Manifests[0]), &manifest)).To(Succeed())
	result := built{
		files: map[string][]byte{}, packed: len(whole), name: index.Manifests[0].Annotations["io.containerd.image.name"],
	}
	g.Expect(json.Unmarshal(blob(manifest.Config), &result.config)).To(Succeed())
	for _, layer := range manifest.Layers {
		packed, err := gzip.NewReader(bytes.NewReader(blob(layer)))
		g.Expect(err).NotTo(HaveOccurred())
		content, err := io.ReadAll(packed)
		g.Expect(err).NotTo(HaveOccurred())
		headers, files := unpack(g, content)
		result.layers = append(result.layers, headers)
		maps.Copy(result.files, files)
	}
	return result
}

func unpack(g *WithT, content []byte) (map[string]*tar.Header, map[string][]byte) {
	headers, files := map[string]*tar.Header{}, map[string][]byte{}
	reader := tar.NewReader(bytes.NewReader(content))
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return headers, files
		}
		g.Expect(err).NotTo(HaveOccurred())
		headers[header.Name] = header
		if header.Typeflag == tar.TypeReg {
			files[header.Name], err = io.ReadAll(reader)
			g.Expect(err).NotTo(HaveOccurred())
		}
	}
}

func imageOf(t *testing.T, o options) built {
	t.Helper()
	o.rootfs, o.name, o.arch = rootfs, "registry.example.com/gpu-operator:dev", runtime.GOARCH
	o.version, o.revision = "v1.2.3-test", "0123abc"
	if o.out == "" {
		o.out = filepath.Join(t.TempDir(), "image.tar")
	}
	g := NewWithT(t)
	_, err := write(t.Context(), o)
	g.Expect(err).NotTo(HaveOccurred())
	return read(g, o.out)
}

func TestTheImageHasTheProgramsAndNoShell(t *testing.T) {
	g := NewWithT(t)
	image := imageOf(t, options{})
	g.Expect(image.layers).To(HaveLen(1))
	want := []string{
		"gpu-operator", "licenses/", "licenses/LICENSE", "usr/", "usr/bin/",
		"usr/bin/gpu-node", "usr/bin/gpu-node-cuda", "usr/bin/gpu-operator",
	}
	g.Expect(slices.Sorted(maps.Keys(image.layers[0]))).To(Equal(want))
	var size int64
	for name, header := range image.layers[0] {
		g.Expect([]int{header.Uid, header.Gid}).To(Equal([]int{0, 0}), name)
		if header.Typeflag != tar.TypeSymlink {
			g.Expect(header.Mode&0o6022).To(BeZero(), "%s: only root may write it, and it is neither setuid nor setgid", name)
		}
		size += header.Size
	}
	for _, name := range want {
		t.Logf("%s %8d kB /%s", fs.FileMode(image.layers[0][name].Mode), image.layers[0][name].Size>>10, name)
	}
	t.Logf("%d MB unpacked, %d MB to pull", size>>20, image.packed>>20)
	g.Expect(size).To(BeNumerically("<", most))
	g.Expect(image.layers[0]["gpu-operator"].Linkname).To(Equal("usr/bin/gpu-operator"))

	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
	for _, program := range []string{"gpu-operator", "gpu-node", "gpu-node-cuda"} {
		binary, err := elf.NewFile(bytes.NewReader(image.files["usr/bin/"+program]))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(binary.Machine).To(Equal(machine), program)
		g.Expect(binary.Section(".interp") != nil).To(Equal(program == "gpu-node-cuda"),
			"%s: only gpu-node-cuda needs a C library", program)
	}
	for _, program := range []string{image.config.Config.Entrypoint[0], "usr/bin/gpu-node", "usr/bin/gpu-node-cuda"} {
		out, err := exec.CommandContext(t.Context(), filepath.Join(rootfs, program), "--version").Output()
		g.Expect(err).NotTo(HaveOccurred(), program)
		g.Expect(string(out)).To(HaveSuffix(" version v1.2.3-test\n"), program)
	}
}

func TestImageRunsAsNonRoot(t *testing.T) {
	g := NewWithT(t)
	image := imageOf(t, options{})
	g.Expect(image.name).To(Equal("registry.example.com/gpu-operator:dev"))
	g.Expect(image.config.OS + "/" + image.config.Architecture).To(Equal("linux/" + runtime.GOARCH))
	g.Expect(image.config.Config.User).To(Equal("65532:65532"))
	g.Expect(image.config.Config.Entrypoint).To(Equal([]string{"/gpu-operator"}))
	g.Expect(image.config.Config.Cmd).To(BeEmpty())
	g.Expect(image.config.Config.Labels).To(And(
		HaveKeyWithValue("org.opencontainers.image.version", "v1.2.3-test"),
		HaveKeyWithValue("org.opencontainers.image.revision", "0123abc"),
		HaveKeyWithValue("org.opencontainers.image.licenses", "Apache-2.0"),
	))
}

// The Dockerfile sets the same configuration.
func TestTheDockerfileMakesTheSameImage(t *testing.T) {
	g := NewWithT(t)
	text, err := os.ReadFile("../../Dockerfile")
	g.Expect(err).NotTo(HaveOccurred())
	_, last, _ := strings.Cut(string(text), "\nFROM ${BASE_IMAGE}\n")
	want := []string{"USER " + User, `ENTRYPOINT ["` + Entrypoint + `"]`, "COPY --from=builder /out/ /",
		`LABEL org.opencontainers.image.version="${VERSION}"`, `LABEL org.opencontainers.image.revision="${REVISION}"`}
	for key, value := range labels() {
		want = append(want, "LABEL "+key+`="`+value+`"`)
	}
	var got []string
	for line := range strings.Lines(last) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "ARG ") {
			got = append(got, line)
		}
	}
	g.Expect(got).To(ConsistOf(want))
	g.Expect(string(text)).To(ContainSubstring(" config/image/build.sh rootfs /out\n"))
	for _, image := range []string{"GO_IMAGE", "BASE_IMAGE"} {
		g.Expect(string(text)).To(MatchRegexp(`(?m)^ARG ` + image + `=\S+:\S+@sha256:[0-9a-f]{64}$`))
	}
}

func TestTheSameFilesMakeTheSameImage(t *testing.T) {
	g := NewWithT(t)
	first, second := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "second")
	imageOf(t, options{out: first})
	imageOf(t, options{out: second})
	one, err := os.ReadFile(first)
	g.Expect(err).NotTo(HaveOccurred())
	other, err := os.ReadFile(second)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(bytes.Equal(one, other)).To(BeTrue())
}

func TestABaseComesFirst(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	base, err := random.Image(1000, 2)
	g.Expect(err).NotTo(HaveOccurred())
	ref, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/base:1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(remote.Write(ref, base)).To(Succeed())
	image := imageOf(t, options{base: ref.Name()})
	g.Expect(image.layers).To(HaveLen(3))
	g.Expect(image.layers[2]).To(HaveKey("usr/bin/gpu-node"))
	g.Expect(image.config.Config.User).To(Equal("65532:65532"))
}

// Docker reads manifest.json of an archive, and finds in it what a registry has after a push.
func TestTheImageIsPushedAndListedForDocker(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	tag, err := name.NewTag(strings.TrimPrefix(server.URL, "http://") + "/gpu-operator:dev")
	g.Expect(err).NotTo(HaveOccurred())
	o := options{rootfs: rootfs, name: tag.Name(), arch: runtime.GOARCH, out: filepath.Join(t.TempDir(), "image.tar")}
	digest, err := write(t.Context(), o)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = remote.Head(tag)
	g.Expect(err).To(HaveOccurred(), "it is pushed on demand")
	listed, err := tarball.ImageFromPath(o.out, &tag)
	g.Expect(err).NotTo(HaveOccurred())
	o.out, o.push = "", true
	g.Expect(write(t.Context(), o)).To(Equal(digest))
	pushed, err := remote.Image(tag)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pushed.Digest()).To(Equal(digest))
	one, err := pushed.RawConfigFile()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(listed.RawConfigFile()).To(Equal(one))
	g.Expect(validate.Image(listed)).To(Succeed())
}

func TestInvalidFlagsAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		options options
		wantErr string
	}{
		"no tag": {
			options{rootfs: rootfs, name: "gpu-operator", out: "x"}, "--name must be an image with a tag",
		},
		"no files": {options{rootfs: "/nowhere", name: "example.com/x:1", out: "x"}, "packing --rootfs=/nowhere"},
		"no such base": {
			options{rootfs: rootfs, name: "example.com/x:1", out: "x", base: "A b"}, "--base must be an image reference",
		},
		"no such registry": {
			options{rootfs: rootfs, name: "127.0.0.1:1/x:1", push: true}, "pushing 127.0.0.1:1/x:1",
		},
		"no such out dir": {options{rootfs: rootfs, name: "example.com/x:1", out: "/nowhere/x"}, "writing --out=/nowhere/x"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := write(t.Context(), test.options)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(test.wantErr)))
		})
	}
}

// The SBOM is compared with what the go command reads from the same programs.
func TestTheSBOMListsWhatIsLinked(t *testing.T) {
	g := NewWithT(t)
	file := filepath.Join(t.TempDir(), "sbom.json")
	g.Expect(writeSBOM(options{rootfs: rootfs, version: "v1.2.3-test"}, file)).To(Succeed())
	content, err := os.Open(file)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = content.Close() }()
	var bill cdx.BOM
	g.Expect(cdx.NewBOMDecoder(content, cdx.BOMFileFormatJSON).Decode(&bill)).To(Succeed())
	got := map[string]bool{}
	for _, component := range *bill.Components {
		g.Expect(got).NotTo(HaveKey(component.BOMRef), "each once")
		got[component.BOMRef] = true
	}
	out, err := exec.CommandContext(t.Context(), "go", "version", "-m", filepath.Join(rootfs, "usr/bin")).Output()
	g.Expect(err).NotTo(HaveOccurred())
	want := 0
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[0] == "dep" {
			want++
			g.Expect(got).To(HaveKey("pkg:golang/" + fields[1] + "@" + fields[2]))
		}
	}
	g.Expect(want).To(BeNumerically(">", 50))
	for _, program := range []string{"gpu-operator", "gpu-node", "gpu-node-cuda"} {
		g.Expect(got).To(HaveKey("usr/bin/" + program))
	}
	t.Logf("%d components:\n%s", len(got), strings.Join(slices.Sorted(maps.Keys(got)), "\n"))
}
