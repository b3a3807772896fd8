package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"go.yaml.in/yaml/v3"
)

// bundle makes the image of the bundle for the Operator Lifecycle Manager: files only, the same for all architectures.
func (r *releaser) bundle(ctx context.Context) error {
	dir := filepath.Join(r.work, "bundle")
	if err := r.generateBundle(ctx, dir); err != nil {
		return err
	}
	annotations := struct {
		Annotations map[string]string `yaml:"annotations"`
	}{}
	text, err := os.ReadFile(filepath.Join(dir, "metadata/annotations.yaml"))
	if err != nil {
		return fmt.Errorf("reading the labels of the bundle: %w", err)
	}
	if err := yaml.Unmarshal(text, &annotations); err != nil {
		return fmt.Errorf("decoding the labels of the bundle: %w", err)
	}
	// A bundle cannot contain admission policies: administrators apply them.
	if err := move(filepath.Join(dir, "admission.yaml"), filepath.Join(r.out, "admission.yaml")); err != nil {
		return fmt.Errorf("taking the admission policies out of the bundle: %w", err)
	}
	if err := os.Remove(filepath.Join(dir, "bundle.Dockerfile")); err != nil {
		return fmt.Errorf("leaving out the Dockerfile of the bundle: %w", err)
	}
	a, err := r.artifactOf("gpu-operator-bundle", r.version)
	if err != nil {
		return err
	}
	base, err := baseImage(ctx, options{base: noBase})
	if err != nil {
		return err
	}
	a.image, err = filesOnly(base, dir, v1.Config{Labels: annotations.Annotations}, architectures[0])
	if err != nil {
		return fmt.Errorf("packing the bundle: %w", err)
	}
	if r.bundleImage, err = r.add("gpu-operator-bundle", a); err != nil {
		return err
	}
	return r.archive(a, "gpu-operator-bundle")
}

// generateBundle writes the bundle, and the catalogue once the bundle has an image.
func (r *releaser) generateBundle(ctx context.Context, dir string) error {
	return r.run(ctx, nil, "go", "run", "./config/manifests/generate", "-version", r.chartVersion(), "-image", r.image,
		"-replaces", strings.TrimPrefix(r.replaces, "v"), "-created", r.created, "-bundle-image", r.bundleImage, "-out", dir)
}

// move moves a file, also to another file system.
func move(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(to, content, 0o644), os.Remove(from))
}

// catalogLabel is the label by which OLM finds the catalogue in its image.
const catalogLabel = "operators.operatorframework.io.index.configs.v1"

// catalog makes the image of a file-based catalogue with the bundle. Without a base it has files only, which OLM
// extracts; with opm as the base it serves them itself.
func (r *releaser) catalog(ctx context.Context) error {
	generated, dir := filepath.Join(r.work, "with-catalog"), filepath.Join(r.work, "catalog")
	place := filepath.Join(dir, "configs/gpu-operator")
	if err := r.generateBundle(ctx, generated); err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(place, 0o755),
		os.Rename(filepath.Join(generated, "catalog.yaml"), filepath.Join(place, "catalog.yaml"))); err != nil {
		return fmt.Errorf("taking the catalogue: %w", err)
	}
	a, err := r.artifactOf("gpu-operator-catalog", r.version)
	if err != nil {
		return err
	}
	images := map[string]v1.Image{}
	for _, arch := range architectures {
		base, err := baseImage(ctx, options{base: r.catalogBase, arch: arch})
		if err != nil {
			return fmt.Errorf("the base of the catalogue: %w", err)
		}
		config := v1.Config{Labels: map[string]string{catalogLabel: "/configs"}}
		if r.catalogBase != noBase {
			config.Entrypoint, config.Cmd = []string{"/bin/opm"}, []string{"serve", "/configs"}
		}
		if images[arch], err = filesOnly(base, dir, config, arch); err != nil {
			return fmt.Errorf("packing the catalogue: %w", err)
		}
	}
	a.content = multiArch(images)
	if _, err := r.add("gpu-operator-catalog", a); err != nil {
		return err
	}
	return r.archive(a, "gpu-operator-catalog")
}

// filesOnly adds the files in a directory to an image, and labels and commands to its configuration.
func filesOnly(base v1.Image, dir string, config v1.Config, arch string) (v1.Image, error) {
	image, err := appendFiles(base, dir)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", arch
	if file.Config.Labels == nil {
		file.Config.Labels = map[string]string{}
	}
	maps.Copy(file.Config.Labels, config.Labels)
	if len(config.Entrypoint) > 0 {
		file.Config.Entrypoint, file.Config.Cmd = config.Entrypoint, config.Cmd
	}
	return mutate.ConfigFile(image, file)
}
