package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

// pinnedOther is the program that stands for NVIDIA's operator in the version that test/incumbent pins.
const pinnedOther = "pinned"

// usePinned makes NVIDIA's operator, in the pinned version, the one to compare with, if -other names it. It is run as
// its chart does. Its policy is that of the chart, without driver upgrades, as in this operator's. What is read from
// the chart is written to dir.
func (o *otherOperator) usePinned(ctx context.Context, dir string) error {
	if o.program != pinnedOther {
		return nil
	}
	incumbent, err := cluster.EnsureIncumbent(ctx, os.Stderr)
	if err != nil {
		return err
	}
	definitions, err := incumbent.Definitions()
	if err != nil {
		return err
	}
	home, err := os.MkdirTemp("", "helm-")
	if err != nil {
		return fmt.Errorf("make a folder for Helm: %w", err)
	}
	defer os.RemoveAll(home)
	text, err := packaged.Helm3(ctx, ".", home, nil, "template", "gpu-operator", incumbent.Chart(),
		"--namespace", namespace, "--set", "nfd.enabled=false,driver.upgradePolicy.autoUpgrade=false")
	if err != nil {
		return err
	}
	objects, err := packaged.Decode(text)
	if err != nil {
		return err
	}
	o.incumbent, o.program, o.manifests = &incumbent, incumbent.Program, strings.Join(definitions, ",")
	o.version = "NVIDIA's gpu-operator " + incumbent.Version
	o.policy, o.env = filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "env")
	return o.readChart(objects, dir)
}

// readChart writes the policy and the variables of the operator to files, and reads its arguments.
func (o *otherOperator) readChart(objects []*unstructured.Unstructured, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the folder of the other operator: %w", err)
	}
	found := 0
	for _, object := range objects {
		switch object.GetKind() {
		case "ClusterPolicy":
			found++
			text, err := yaml.Marshal(object.Object)
			if err != nil {
				return fmt.Errorf("write the policy of the other operator: %w", err)
			}
			if err := os.WriteFile(o.policy, text, 0o600); err != nil {
				return fmt.Errorf("write the policy of the other operator: %w", err)
			}
		case "Deployment":
			found++
			if err := o.readDeployment(object); err != nil {
				return err
			}
		}
	}
	if found != 2 {
		return errors.New("the chart of NVIDIA's operator: want a Deployment and a ClusterPolicy")
	}
	return nil
}

// readDeployment writes the variables of the operator's container, and reads its arguments.
func (o *otherOperator) readDeployment(object *unstructured.Unstructured) error {
	deployment := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, deployment); err != nil {
		return fmt.Errorf("read the Deployment of the other operator: %w", err)
	}
	container := &deployment.Spec.Template.Spec.Containers[0]
	variables := "OPERATOR_NAMESPACE=" + namespace + "\n"
	for _, variable := range container.Env {
		if variable.ValueFrom == nil {
			variables += variable.Name + "=" + variable.Value + "\n"
		}
	}
	if err := os.WriteFile(o.env, []byte(variables), 0o600); err != nil {
		return fmt.Errorf("write the variables of the other operator: %w", err)
	}
	o.args = strings.Join(append(container.Args,
		"--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0"), " ")
	return nil
}

// otherFiles returns where the other operator finds the files of its image; nil for those of this machine.
func (e *env) otherFiles() (map[string]string, error) {
	if e.other.incumbent == nil {
		return nil, nil
	}
	dir, err := os.MkdirTemp(filepath.Dir(e.cluster.LogDir), "image-")
	if err != nil {
		return nil, fmt.Errorf("make the files of the other operator: %w", err)
	}
	return e.other.incumbent.Files(dir, namespace)
}
