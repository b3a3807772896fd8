package main

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/gomega"
)

// Images have the digest that their registry gives for their tag, that of an index too. Others are reported.
func TestDigestsOfARegistry(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	image, err := random.Image(64, 1)
	g.Expect(err).NotTo(HaveOccurred())
	index, err := random.Index(64, 1, 2)
	g.Expect(err).NotTo(HaveOccurred())
	tag := func(path string) name.Tag {
		parsed, err := name.NewTag(host + "/" + path)
		g.Expect(err).NotTo(HaveOccurred())
		return parsed
	}
	g.Expect(remote.Write(tag("nvidia/plugin:v1"), image)).To(Succeed())
	g.Expect(remote.WriteIndex(tag("nvidia/exporter:v2"), index)).To(Succeed())
	ofImage, err := image.Digest()
	g.Expect(err).NotTo(HaveOccurred())
	ofIndex, err := index.Digest()
	g.Expect(err).NotTo(HaveOccurred())

	var out, problems bytes.Buffer
	names := host + "/nvidia/plugin:v1\n\n" + host + "/nvidia/missing:v1\n" + host + "/nvidia/exporter:v2\n"
	g.Expect(digestsCommand(t.Context(), strings.NewReader(names), &out, &problems)).To(Succeed())
	g.Expect(out.String()).To(Equal(host + "/nvidia/plugin:v1 " + ofImage.String() + "\n" +
		host + "/nvidia/exporter:v2 " + ofIndex.String() + "\n"))
	g.Expect(problems.String()).To(HavePrefix(host + "/nvidia/missing:v1 has no digest: "))
	g.Expect(strings.Count(problems.String(), "has no digest")).To(Equal(1))

	err = digestsCommand(t.Context(), strings.NewReader("no name\n"), io.Discard, io.Discard)
	g.Expect(err).To(MatchError(ContainSubstring(`"no name" is no name of an image with a tag`)))
}
