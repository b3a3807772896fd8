package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/mod/semver"
)

// release describes the release of a bundle.
type release struct {
	// version is a semantic version without the prefix v.
	version string
	// image of the operator; empty for the placeholder in config/manager, which only a working tree may have.
	image string
	// created is the release time in RFC 3339; empty for a working tree, so that its bundle does not change by time.
	created string
	// bundleImage is where the bundle is pulled from, for the catalogue; empty for none.
	bundleImage string
}

// catalogFile is the path of the catalogue beside the bundle.
const catalogFile = "catalog.yaml"

// workingTree is the version of an unreleased bundle.
const workingTree = "0.0.0-dev"

func main() {
	r, out := release{}, ""
	flag.StringVar(&r.version, "version", workingTree, "semantic version of the release, without the prefix v")
	flag.StringVar(&r.image, "image", "", "image of the operator; required for a release")
	flag.StringVar(&r.created, "created", "", "time of the release, in RFC 3339 (default none)")
	flag.StringVar(&r.bundleImage, "bundle-image", "",
		"image of the bundle, by digest: adds "+catalogFile+" for a catalogue (default none)")
	flag.StringVar(&out, "out", "bundle", "folder of the bundle; its contents are replaced")
	flag.Parse()
	if err := run(".", out, r); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// run writes the bundle of the repository in folder root.
func run(root, out string, r release) error {
	if semver.Canonical("v"+r.version) != "v"+r.version {
		return fmt.Errorf("-version %q is not a semantic version: give one such as 1.2.3", r.version)
	}
	if r.version != workingTree && r.image == "" {
		return errors.New("-image is not set: give the operator's image of the release")
	}
	files, err := generate(root, r)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return fmt.Errorf("removing the old bundle: %w", err)
	}
	for name, content := range files {
		path := filepath.Join(out, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("creating the folder of %s: %w", name, err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}

// generate returns the files of the bundle by their paths in it.
func generate(root string, r release) (map[string][]byte, error) {
	parts, err := read(filepath.Join(root, "config/manifests"))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{
		"metadata/annotations.yaml":   annotations(),
		"tests/scorecard/config.yaml": scorecard(),
		"bundle.Dockerfile":           dockerfile(),
	}
	for _, object := range parts.beside {
		if files["manifests/"+fileOf(object)], err = marshal(object.Object); err != nil {
			return nil, err
		}
	}
	csv, err := clusterServiceVersion(root, parts, r)
	if err != nil {
		return nil, err
	}
	if r.bundleImage != "" {
		if files[catalogFile], err = catalog(csv, parts, r); err != nil {
			return nil, err
		}
	}
	files["manifests/gpu-operator.clusterserviceversion.yaml"], err = marshal(csv)
	return files, err
}
