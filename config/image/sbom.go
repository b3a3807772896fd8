package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// programs is the directory of the programs in the image.
const programs = "usr/bin"

// writeSBOM writes the SBOM of the programs in the image, in CycloneDX format: each program with its digest, and each
// Go module that is linked into it. It does not cover the base image.
func writeSBOM(o options, file string) error {
	bill, err := sbom(o)
	if err != nil {
		return fmt.Errorf("reading the programs of --rootfs=%s: %w", o.rootfs, err)
	}
	out, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("writing --sbom: %w", err)
	}
	if err := cdx.NewBOMEncoder(out, cdx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false).Encode(bill); err != nil {
		return fmt.Errorf("writing --sbom=%s: %w", file, err)
	}
	return out.Close()
}

func sbom(o options) (*cdx.BOM, error) {
	entries, err := os.ReadDir(filepath.Join(o.rootfs, programs))
	if err != nil {
		return nil, err
	}
	image := cdx.Component{BOMRef: "image", Type: cdx.ComponentTypeContainer, Name: "gpu-operator", Version: o.version}
	modules := map[string]cdx.Component{}
	var found []cdx.Component
	var edges []cdx.Dependency
	var names []string
	for _, entry := range entries {
		program, parts, err := describe(filepath.Join(o.rootfs, programs, entry.Name()), o.version)
		if err != nil {
			return nil, err
		}
		found, names = append(found, program), append(names, program.BOMRef)
		maps.Copy(modules, parts)
		refs := slices.Sorted(maps.Keys(parts))
		edges = append(edges, cdx.Dependency{Ref: program.BOMRef, Dependencies: &refs})
	}
	edges = append(edges, cdx.Dependency{Ref: image.BOMRef, Dependencies: &names})
	for _, key := range slices.Sorted(maps.Keys(modules)) {
		found = append(found, modules[key])
	}
	slices.SortFunc(edges, func(a, b cdx.Dependency) int { return cmp.Compare(a.Ref, b.Ref) })
	bill := cdx.NewBOM()
	bill.Metadata = &cdx.Metadata{Component: &image}
	bill.Components, bill.Dependencies = &found, &edges
	return bill, nil
}

// describe returns a program, and the modules linked into it by their references.
func describe(path, version string) (cdx.Component, map[string]cdx.Component, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return cdx.Component{}, nil, err
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return cdx.Component{}, nil, err
	}
	digest := sha256.Sum256(content)
	program := cdx.Component{
		BOMRef: programs + "/" +
			filepath.Base(path), Type: cdx.ComponentTypeApplication, Name: filepath.Base(path), Version: version,
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(digest[:])}},
	}
	standard := &debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")}
	parts := map[string]cdx.Component{}
	for _, module := range append([]*debug.Module{standard}, info.Deps...) {
		if module.Replace != nil {
			module = module.Replace
		}
		component := cdx.Component{
			Type: cdx.ComponentTypeLibrary, Name: module.Path, Version: module.Version, PackageURL: packageURL(module),
		}
		component.BOMRef = component.PackageURL
		parts[component.BOMRef] = component
	}
	return program, parts, nil
}

// packageURL returns a module's purl, by which vulnerability scanners identify it. The go.sum digest is not the
// digest of a file, and so is omitted.
func packageURL(module *debug.Module) string {
	parts := strings.Split(module.Path, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return "pkg:golang/" + strings.Join(parts, "/") + "@" + url.PathEscape(module.Version)
}
