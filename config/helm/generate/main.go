package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/clusterpolicy/gpu-operator/config"
	"github.com/clusterpolicy/gpu-operator/config/crd"
)

// header stands above each generated template.
const header = "{{- /* Written by make chart from %s: change that instead. */ -}}\n"

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// run writes the generated files of the chart in the repository at root.
func run(root string) error {
	files, err := generate(root)
	if err != nil {
		return err
	}
	chart := filepath.Join(root, "config/helm/gpu-operator")
	for name, content := range files {
		path := filepath.Join(chart, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("making the folder of %s: %w", name, err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}

// generate returns the generated files by their names in the chart.
func generate(root string) (map[string][]byte, error) {
	built, err := config.Build(filepath.Join(root, "config/default"))
	if err != nil {
		return nil, err
	}
	var objects []object
	for _, one := range built {
		objects = append(objects, one.Object)
	}
	values, err := newValues()
	if err != nil {
		return nil, err
	}
	if err := values.setDeployment(objects); err != nil {
		return nil, err
	}
	files, err := values.files()
	if err != nil {
		return nil, err
	}
	templates, err := templates(root, objects)
	if err != nil {
		return nil, err
	}
	for name, content := range templates {
		files["templates/"+name] = content
	}
	files["crds/nvidia.com_clusterpolicies.yaml"] = crd.ClusterPolicy
	files["Chart.yaml"] = chartYAML()
	return files, nil
}
