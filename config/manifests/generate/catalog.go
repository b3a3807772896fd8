package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/yaml"
)

// catalogFields are the fields of a ClusterServiceVersion that consoles show without unpacking the bundle, by their
// names in the property olm.csv.metadata. All are below spec.
var catalogFields = map[string]string{
	"customresourcedefinitions": "crdDescriptions", "description": "description", "displayName": "displayName",
	"installModes": "installModes", "keywords": "keywords", "links": "links", "maintainers": "maintainers",
	"maturity": "maturity", "minKubeVersion": "minKubeVersion", "provider": "provider",
}

// catalog returns a file-based catalogue with one release of the operator, whose bundle is an image in a registry. An
// installed release of any older version is upgraded to it.
func catalog(csv map[string]any, p *parts, r release) ([]byte, error) {
	metadata, _ := csv["metadata"].(map[string]any)
	spec, _ := csv["spec"].(map[string]any)
	shown := map[string]any{"annotations": metadata["annotations"], "labels": metadata["labels"]}
	for field, name := range catalogFields {
		if value, isSet := spec[field]; isSet {
			shown[name] = value
		}
	}
	related, _ := spec["relatedImages"].([]relatedImage)
	channels, fallback := r.channels()
	objects := []map[string]any{{
		"schema": "olm.package", "name": packageName, "defaultChannel": fallback, "description": spec["description"],
	}}
	for _, channel := range channels {
		objects = append(objects, map[string]any{
			"schema": "olm.channel", "package": packageName, "name": channel,
			"entries": []any{map[string]any{"name": metadata["name"], "skipRange": "<" + r.version}},
		})
	}
	objects = append(objects, map[string]any{
		"schema": "olm.bundle", "package": packageName, "name": metadata["name"], "image": r.bundleImage,
		"properties": append(kinds(p),
			property("olm.package", map[string]any{"packageName": packageName, "version": r.version}),
			property("olm.csv.metadata", shown)),
		"relatedImages": append(related, relatedImage{Image: r.bundleImage}),
	})
	var text bytes.Buffer
	for _, object := range objects {
		encoded, err := yaml.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("encoding the catalogue: %w", err)
		}
		text.WriteString("---\n")
		text.Write(encoded)
	}
	return text.Bytes(), nil
}

// kinds are the properties with the kinds that the release has, sorted.
func kinds(p *parts) []any {
	var all []any
	for _, name := range slices.Sorted(maps.Keys(p.definitions)) {
		kind := p.definitions[name].Spec
		all = append(all, property("olm.gvk", map[string]any{
			"group": kind.Group, "kind": name, "version": kind.Versions[0].Name,
		}))
	}
	return all
}

func property(kind string, value any) map[string]any {
	return map[string]any{"type": kind, "value": value}
}
