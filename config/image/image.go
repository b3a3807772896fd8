package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// User and Entrypoint of the image; a test compares them and the labels with the Dockerfile.
const (
	User       = "65532:65532"
	Entrypoint = "/gpu-operator"
)

// Labels that do not change from build to build.
func labels() map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title":         "gpu-operator",
		prefix + "description":   "Makes the NVIDIA GPU nodes of a Kubernetes cluster ready for work",
		prefix + "source":        "https://github.com/clusterpolicy/gpu-operator",
		prefix + "documentation": "https://github.com/clusterpolicy/gpu-operator/blob/main/README.md",
		prefix + "licenses":      "Apache-2.0",
	}
}

// noBase is the base without any files, as in a Dockerfile.
const noBase = "scratch"

type options struct {
	rootfs, out, name, arch, version, revision, base string
	// push is to push the image to the registry in its name.
	push bool
}

// write builds the image, writes the archive, if it has a path, pushes the image if wanted, and returns its digest. The
// same files give the same digest.
func write(ctx context.Context, o options) (v1.Hash, error) {
	tag, err := name.NewTag(o.name, name.StrictValidation)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("--name must be an image with a tag, such as registry.example.com/gpu-operator:dev: %w",
			err)
	}
	image, err := build(ctx, o)
	if err != nil {
		return v1.Hash{}, err
	}
	if o.push {
		keys := remote.WithAuthFromKeychain(authn.DefaultKeychain)
		if err := remote.Write(tag, image, remote.WithContext(ctx), keys); err != nil {
			return v1.Hash{}, fmt.Errorf("pushing %s: %w", tag, err)
		}
	}
	if o.out == "" {
		return image.Digest()
	}
	list, err := dockerList(tag, image)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("listing the parts of %s: %w", tag, err)
	}
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: image, Descriptor: named(tag)})
	if err := save(index, o.out, list); err != nil {
		return v1.Hash{}, fmt.Errorf("writing --out=%s: %w", o.out, err)
	}
	return image.Digest()
}

// dockerList returns manifest.json, by which docker load finds the parts of an image where Docker does not keep its
// images in containerd.
func dockerList(tag name.Tag, image v1.Image) ([]byte, error) {
	manifest, err := image.Manifest()
	if err != nil {
		return nil, err
	}
	path := func(blob v1.Descriptor) string { return "blobs/" + blob.Digest.Algorithm + "/" + blob.Digest.Hex }
	listed := tarball.Descriptor{Config: path(manifest.Config), RepoTags: []string{tag.Name()}}
	for _, layer := range manifest.Layers {
		listed.Layers = append(listed.Layers, path(layer))
	}
	return json.Marshal(tarball.Manifest{listed})
}

// build returns the image.
func build(ctx context.Context, o options) (v1.Image, error) {
	base, err := baseImage(ctx, o)
	if err != nil {
		return nil, err
	}
	image, err := appendFiles(base, o.rootfs)
	if err != nil {
		return nil, fmt.Errorf("packing --rootfs=%s: %w", o.rootfs, err)
	}
	return configure(image, o)
}

// appendFiles adds the files in a directory to an image, as one layer.
func appendFiles(image v1.Image, dir string) (v1.Image, error) {
	files, err := archive(dir)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files)), nil
	},
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("creating the layer: %w", err)
	}
	return mutate.AppendLayers(image, layer)
}

// baseImage returns the named image, or an empty one without a name.
func baseImage(ctx context.Context, o options) (v1.Image, error) {
	if o.base == "" || o.base == noBase {
		return mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), nil
	}
	ref, err := name.ParseReference(o.base)
	if err != nil {
		return nil, fmt.Errorf("--base must be an image reference: %w", err)
	}
	base, err := remote.Image(ref, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: o.arch}))
	if err != nil {
		return nil, fmt.Errorf("pulling --base=%s for linux/%s: %w", o.base, o.arch, err)
	}
	return base, nil
}

func configure(image v1.Image, o options) (v1.Image, error) {
	file, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("reading the configuration of the base: %w", err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", o.arch
	config := &file.Config
	config.User, config.Entrypoint, config.Cmd = User, []string{Entrypoint}, nil
	if len(config.Env) == 0 {
		config.Env = []string{"PATH=/usr/bin"}
	}
	if config.Labels == nil {
		config.Labels = map[string]string{}
	}
	for key, value := range labels() {
		config.Labels[key] = value
	}
	config.Labels["org.opencontainers.image.version"] = o.version
	config.Labels["org.opencontainers.image.revision"] = o.revision
	configured, err := mutate.ConfigFile(image, file)
	if err != nil {
		return nil, fmt.Errorf("configuring the image: %w", err)
	}
	return configured, nil
}

// named returns the annotations by which archives name an image.
func named(tag name.Tag) v1.Descriptor {
	return v1.Descriptor{Annotations: map[string]string{
		"org.opencontainers.image.ref.name": tag.TagStr(),
		"io.containerd.image.name":          tag.Name(),
	}}
}

// save writes the images of an index as an archive in the OCI layout, with the list for Docker unless that is nil.
func save(index v1.ImageIndex, out string, list []byte) (err error) {
	dir, err := os.MkdirTemp(filepath.Dir(out), ".image-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	tree := filepath.Join(dir, "layout")
	if _, err := layout.Write(tree, index); err != nil {
		return err
	}
	if list != nil {
		if err := os.WriteFile(filepath.Join(tree, "manifest.json"), list, 0o644); err != nil {
			return err
		}
	}
	whole, err := archive(tree)
	if err != nil {
		return err
	}
	finished := filepath.Join(dir, "finished")
	if err := os.WriteFile(finished, whole, 0o644); err != nil {
		return err
	}
	return os.Rename(finished, out)
}

// archive returns a directory as a tar file that does not depend on the machine: sorted by name, owned by root, with
// zero times, and with no permissions but to read and to execute.
func archive(dir string) ([]byte, error) {
	var packed bytes.Buffer
	writer := tar.NewWriter(&packed)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		return add(writer, dir, path, entry)
	})
	if err != nil {
		return nil, err
	}
	return packed.Bytes(), writer.Close()
}

func add(writer *tar.Writer, dir, path string, entry fs.DirEntry) error {
	relative, err := filepath.Rel(dir, path)
	if err != nil {
		return err
	}
	info, err := entry.Info()
	if err != nil {
		return err
	}
	header := &tar.Header{Name: filepath.ToSlash(relative), Mode: 0o644, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
	if info.Mode()&0o100 != 0 {
		header.Mode = 0o755
	}
	switch {
	case entry.IsDir():
		header.Typeflag, header.Name = tar.TypeDir, header.Name+"/"
		return writer.WriteHeader(header)
	case entry.Type() == fs.ModeSymlink:
		header.Typeflag, header.Mode = tar.TypeSymlink, 0o777
		if header.Linkname, err = os.Readlink(path); err != nil {
			return err
		}
		return writer.WriteHeader(header)
	case !entry.Type().IsRegular():
		return fmt.Errorf("%s is not a file, directory or symbolic link", path)
	}
	header.Typeflag, header.Size = tar.TypeReg, info.Size()
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := writer.WriteHeader(header); err != nil {
		return err
	}
	_, err = writer.Write(content)
	return err
}
