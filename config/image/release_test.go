package main

import (
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/gomega"
)

// The whole release is tested in test/install, on a control plane.

func TestInvalidReleasesAreRefused(t *testing.T) {
	full := t.TempDir()
	NewWithT(t).Expect(os.WriteFile(filepath.Join(full, "precious"), nil, 0o600)).To(Succeed())
	out := "--out=" + filepath.Join(t.TempDir(), "dist")
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no version":       {[]string{out, "--registry=a.b/c"}, `--version "" is no version of a release`},
		"a commit":         {[]string{out, "--registry=a.b/c", "--version=c28775f-dirty"}, "is no version of a release"},
		"no v":             {[]string{out, "--registry=a.b/c", "--version=1.2.3"}, "give one such as v1.2.3"},
		"build metadata":   {[]string{out, "--registry=a.b/c", "--version=v1.2.3+4"}, "is no version of a release"},
		"no registry":      {[]string{out, "--version=v1.2.3"}, "--registry must be a registry with a path"},
		"a capital letter": {[]string{out, "--version=v1.2.3", "--registry=a.b/C"}, "--registry must be a registry"},
		"an unknown platform": {
			[]string{out, "--version=v1.2.3", "--registry=a.b/c", "--plugin-platforms=plan9/amd64"}, `has "plan9/amd64"`,
		},
		"no repository": {
			[]string{out, "--version=v1.2.3", "--registry=a.b/c", "--root=/nowhere"}, "reading the base image",
		},
		"another folder": {
			[]string{"--out=" + full, "--version=v1.2.3", "--registry=a.b/c"}, "has files that are no release",
		},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(releaseCommand(t.Context(), test.args, io.Discard)).To(MatchError(ContainSubstring(test.want)))
		})
	}
	NewWithT(t).Expect(filepath.Join(full, "precious")).To(BeARegularFile())
}

func TestAReleaseReplacesOnlyARelease(t *testing.T) {
	g := NewWithT(t)
	dir := filepath.Join(t.TempDir(), "a", "dist")
	g.Expect(makeEmpty(dir)).To(Succeed(), "it is created")
	g.Expect(os.WriteFile(filepath.Join(dir, "install.yaml"), nil, 0o600)).To(Succeed())
	g.Expect(makeEmpty(dir)).To(MatchError(ContainSubstring("has files that are no release")))
	g.Expect(os.WriteFile(filepath.Join(dir, checksums), nil, 0o600)).To(Succeed())
	g.Expect(makeEmpty(dir)).To(Succeed())
	g.Expect(os.ReadDir(dir)).To(BeEmpty())
}

// A release is built on the base image of the Dockerfile.
func TestTheBaseIsThatOfTheDockerfile(t *testing.T) {
	g := NewWithT(t)
	o := releaseOptions{root: "../..", version: "v1.2.3", registry: "a.b/c", pluginPlatforms: pluginPlatforms[0]}
	g.Expect(o.complete()).To(Succeed())
	g.Expect(o.base).To(MatchRegexp(`^gcr\.io/distroless/cc-debian12:nonroot@sha256:[0-9a-f]{64}$`))
	o.base = noBase
	g.Expect(o.complete()).To(Succeed())
	g.Expect(o.base).To(Equal(noBase))
}

// Who has pulled a release by its tag gets the same one again. Nothing is pushed if one of the tags is taken.
func TestReleasedTagsAreNotMoved(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	artifactOf := func(path string) artifact {
		tag, err := name.NewTag(host + "/" + path + ":v1")
		g.Expect(err).NotTo(HaveOccurred())
		image, err := random.Image(100, 1)
		g.Expect(err).NotTo(HaveOccurred())
		return artifact{tag: tag, image: image}
	}
	first, second := artifactOf("first"), artifactOf("second")
	r := &releaser{progress: io.Discard, artifacts: []artifact{second}}
	g.Expect(r.pushAll(t.Context())).To(Succeed())
	g.Expect(r.pushAll(t.Context())).To(Succeed(), "the same again")

	r.artifacts = []artifact{first, artifactOf("second")}
	g.Expect(r.pushAll(t.Context())).To(MatchError(And(
		ContainSubstring(host+"/second:v1 is sha256:"), ContainSubstring("release another version"))))
	_, err := remote.Head(first.tag)
	g.Expect(err).To(MatchError(ContainSubstring("404")), "nothing was pushed")
}

// The artifact of a chart is what Helm's documentation describes.
func TestTheArtifactOfAChart(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	g.Expect(os.WriteFile(filepath.Join(dir, "Chart.yaml"),
		[]byte("{apiVersion: v2, name: c, version: 1.2.3, keywords: [a], home: h, description: d}"), 0o600)).To(Succeed())
	image, err := chartImage(dir, []byte("packed"))
	g.Expect(err).NotTo(HaveOccurred())
	manifest, err := image.Manifest()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(manifest.Config.MediaType).To(BeEquivalentTo("application/vnd.cncf.helm.config.v1+json"))
	g.Expect(manifest.Layers).To(ConsistOf(HaveField("MediaType",
		BeEquivalentTo("application/vnd.cncf.helm.chart.content.v1.tar+gzip"))))
	g.Expect(manifest.Annotations).To(HaveKeyWithValue("org.opencontainers.image.version", "1.2.3"))
	config, err := image.RawConfigFile()
	g.Expect(err).NotTo(HaveOccurred())
	got := map[string]any{}
	g.Expect(json.Unmarshal(config, &got)).To(Succeed())
	g.Expect(got).To(And(HaveKeyWithValue("name", "c"), HaveKeyWithValue("keywords", ConsistOf("a"))))
	digest, size, err := v1.SHA256(strings.NewReader(string(config)))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect([]any{manifest.Config.Digest, manifest.Config.Size}).To(Equal([]any{digest, size}))
}
