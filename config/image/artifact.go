package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"go.yaml.in/yaml/v3"
)

// Media types by which Helm finds the parts of a chart in a registry.
const (
	chartConfigType  = types.MediaType("application/vnd.cncf.helm.config.v1+json")
	chartContentType = types.MediaType("application/vnd.cncf.helm.chart.content.v1.tar+gzip")
)

// checksums is the file with those of all others of a release.
const checksums = "SHA256SUMS"

// multiArch returns the index of the images by architecture.
func multiArch(images map[string]v1.Image) v1.ImageIndex {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range architectures {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: images[arch], Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	return index
}

// holding returns an index with nothing but the artifact, by its name, as an archive has it.
func holding(a artifact) v1.ImageIndex {
	if a.image != nil {
		return mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: a.image, Descriptor: named(a.tag)})
	}
	return mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: a.content, Descriptor: named(a.tag)})
}

// pack returns the files in a directory as a .tar.gz, the same for the same files.
func pack(dir string) ([]byte, error) {
	files, err := archive(dir)
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	if _, err := writer.Write(files); err != nil {
		return nil, err
	}
	err = writer.Close()
	return packed.Bytes(), err
}

// chartManifest is a packaged chart as Helm pulls it from a registry.
type chartManifest struct {
	config, manifest []byte
	layer            v1.Layer
}

// chartImage returns the package of the chart in dir as an artifact of a registry.
func chartImage(dir string, packed []byte) (v1.Image, error) {
	text, err := os.ReadFile(filepath.Join(dir, "Chart.yaml"))
	if err != nil {
		return nil, err
	}
	metadata := map[string]any{}
	if err := yaml.Unmarshal(text, &metadata); err != nil {
		return nil, fmt.Errorf("decoding Chart.yaml: %w", err)
	}
	c := &chartManifest{layer: static.NewLayer(packed, chartContentType)}
	if c.config, err = json.Marshal(metadata); err != nil {
		return nil, fmt.Errorf("encoding Chart.yaml: %w", err)
	}
	field := func(key string) string { return fmt.Sprint(metadata[key]) }
	const prefix = "org.opencontainers.image."
	c.manifest, err = json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Config: describeBlob(c.config, chartConfigType), Layers: []v1.Descriptor{describeBlob(packed, chartContentType)},
		Annotations: map[string]string{
			prefix + "title": field("name"), prefix + "version": field("version"), prefix + "url": field("home"),
			prefix + "description": field("description"), prefix + "source": field("home"),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the manifest: %w", err)
	}
	return partial.CompressedToImage(c)
}

func describeBlob(content []byte, media types.MediaType) v1.Descriptor {
	digest := v1.Hash{Algorithm: "sha256", Hex: fmt.Sprintf("%x", sha256.Sum256(content))}
	return v1.Descriptor{MediaType: media, Size: int64(len(content)), Digest: digest}
}

// RawConfigFile returns the fields of Chart.yaml.
func (c *chartManifest) RawConfigFile() ([]byte, error) { return c.config, nil }

// RawManifest returns the manifest.
func (c *chartManifest) RawManifest() ([]byte, error) { return c.manifest, nil }

// MediaType returns that of the manifest.
func (c *chartManifest) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// LayerByDigest returns the package, whatever the digest: there is no other layer.
func (c *chartManifest) LayerByDigest(v1.Hash) (partial.CompressedLayer, error) { return c.layer, nil }

// list writes the names of all artifacts by digest, and the checksums of all files.
func (r *releaser) list() error {
	images := strings.Join(r.lines, "\n") + "\n"
	if err := os.WriteFile(filepath.Join(r.out, "images.txt"), []byte(images), 0o644); err != nil {
		return fmt.Errorf("listing the images: %w", err)
	}
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return fmt.Errorf("listing the files: %w", err)
	}
	var sums strings.Builder
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(r.out, entry.Name()))
		if err != nil {
			return fmt.Errorf("computing the checksums: %w", err)
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), entry.Name())
	}
	if err := os.WriteFile(filepath.Join(r.out, checksums), []byte(sums.String()), 0o644); err != nil {
		return fmt.Errorf("writing the checksums: %w", err)
	}
	return nil
}

// pushAll pushes all artifacts. A released tag is never moved, so all tags are checked before the first write.
func (r *releaser) pushAll(ctx context.Context) error {
	flags := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	for _, a := range r.artifacts {
		if err := checkTag(a, flags); err != nil {
			return err
		}
	}
	for _, a := range r.artifacts {
		err := error(nil)
		if a.image != nil {
			err = remote.Write(a.tag, a.image, flags...)
		} else {
			err = remote.WriteIndex(a.tag, a.content, flags...)
		}
		if err != nil {
			return fmt.Errorf("pushing %s: %w", a.tag, err)
		}
		fmt.Fprintln(r.progress, "pushed", a.tag)
	}
	return nil
}

// checkTag fails if the registry has another artifact by this tag.
func checkTag(a artifact, flags []remote.Option) error {
	digest, err := a.digest()
	if err != nil {
		return fmt.Errorf("computing the digest of %s: %w", a.tag, err)
	}
	found, err := remote.Head(name.Reference(a.tag), flags...)
	if refused := (&transport.Error{}); errors.As(err, &refused) && slices.Contains(
		[]int{http.StatusNotFound, http.StatusForbidden, http.StatusUnauthorized}, refused.StatusCode) {
		// Some registries deny that a repository exists until a client has written it; the push fails if it must.
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for %s: %w", a.tag, err)
	}
	if found.Digest != digest {
		return fmt.Errorf("%s is %s in the registry, and this build is %s: release another version", a.tag, found.Digest,
			digest)
	}
	return nil
}
