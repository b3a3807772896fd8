package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/stack/nvidiadriver"
)

// What convert converts to.
const (
	toNodePools = "node-pools"
	toObjects   = "nvidiadrivers"
)

// convertOptions are the flags of convert.
type convertOptions struct {
	file, to   string
	connection connection
}

func convertCommand() *cobra.Command {
	o := convertOptions{}
	command := &cobra.Command{
		Use:   "convert --to node-pools|nvidiadrivers [-f FILE]",
		Short: "Print NVIDIADrivers as node pools of the ClusterPolicy, or node pools as NVIDIADrivers",
		Long: `Print what declares the same drivers in another form, as YAML for kubectl apply. Nothing is written.

--to node-pools takes a ClusterPolicy that uses NVIDIADrivers (spec.driver.useNvidiaDriverCRD) and all of them, and
prints the ClusterPolicy with spec.nodePools. Node pools of the policy without a driver stay, and get one if their nodes
have an NVIDIADriver. Once the policy is applied, delete the NVIDIADrivers: they have no effect then.

--to nvidiadrivers takes a ClusterPolicy without NVIDIADrivers, and prints them, and then the policy that uses them. The
one with default: true, or with the nodeSelector of the policy, has spec.driver.

Every node has the same driver afterwards; what the other form cannot express is an error with its object and field.
GPU nodes that no NVIDIADriver selects are the exception, since they have spec.driver as node pools. kubectl gpu plan -f
shows what applying the output would change.

Without a file, the objects are read from the cluster, which needs the right to list ClusterPolicies and NVIDIADrivers.
Exit codes: 0 success, 1 failure, 2 wrong usage.`,
		Example: `  kubectl gpu convert --to node-pools > policy.yaml
  kubectl gpu plan -f policy.yaml
  kubectl gpu convert --to nvidiadrivers -f policy.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.to != toNodePools && o.to != toObjects {
				return fmt.Errorf("--to %q: give %s or %s", o.to, toNodePools, toObjects)
			}
			if err := o.run(cmd); err != nil {
				return failure{err}
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVarP(&o.file, "filename", "f", "",
		"file with the ClusterPolicy and the NVIDIADrivers; - reads standard input (default: those of the cluster)")
	flags.StringVar(&o.to, "to", "", "what to print: "+toNodePools+" or "+toObjects)
	requireFlags(command, "to")
	o.connection.addFlags(flags)
	return command
}

func (o convertOptions) run(cmd *cobra.Command) error {
	from, err := o.read(cmd.Context(), cmd.InOrStdin())
	if err != nil {
		return err
	}
	if o.to == toNodePools {
		return convertToNodePools(from, cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return convertToObjects(from, cmd.OutOrStdout())
}

// read returns the objects of the file, or else of the cluster.
func (o convertOptions) read(ctx context.Context, in io.Reader) (*policyFile, error) {
	if o.file != "" {
		read, err := readPolicy(o.file, in)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", o.file, err)
		}
		return read, nil
	}
	var all [][]byte
	asked, err := o.connection.open()
	if err != nil {
		return nil, err
	}
	err = asked.get(ctx, selection{resources: crd.Name + "," + crd.NVIDIADriverName},
		func(object *unstructured.Unstructured) error {
			text, err := object.MarshalJSON()
			all = append(all, text)
			return err
		})
	if err != nil {
		return nil, err
	}
	read, err := decodeFile(all)
	if err != nil {
		return nil, fmt.Errorf("reading the cluster: %w", err)
	}
	return read, nil
}

func convertToNodePools(from *policyFile, out, stderr io.Writer) error {
	if len(from.Drivers) == 0 {
		return errors.New("there is no NVIDIADriver to convert: add them to the file")
	}
	policy, err := nvidiadriver.ToNodePools(from.Policy, from.Drivers)
	if err != nil {
		return err
	}
	if !nvidiadriver.SelectAll(from.Drivers) {
		fmt.Fprintln(stderr,
			"GPU nodes that no NVIDIADriver selects would get spec.driver of the policy: see kubectl gpu plan")
	}
	return printObjects(out, policy)
}

func convertToObjects(from *policyFile, out io.Writer) error {
	for _, driver := range from.Drivers {
		return fmt.Errorf("NVIDIADriver %s: metadata.name is that of an object which the policy would use, too: delete it",
			driver.Name)
	}
	policy, drivers, err := nvidiadriver.ToObjects(from.Policy)
	if err != nil {
		return err
	}
	var all []runtime.Object
	for i := range drivers {
		all = append(all, &drivers[i])
	}
	return printObjects(out, append(all, policy)...)
}

// printObjects prints objects as YAML documents, as their author would write them.
func printObjects(out io.Writer, objects ...runtime.Object) error {
	for _, object := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return fmt.Errorf("encoding an object: %w", err)
		}
		kind := v1.ClusterPolicyKind
		if _, isDriver := object.(*v1alpha1.NVIDIADriver); isDriver {
			kind = v1alpha1.NVIDIADriverKind
		}
		content["apiVersion"], content["kind"] = kind.GroupVersion().String(), kind.Kind
		delete(content, "status")
		if metadata, isMap := content["metadata"].(map[string]any); isMap {
			content["metadata"] = ofAuthor(metadata)
		}
		text, err := yaml.Marshal(content)
		if err != nil {
			return fmt.Errorf("encoding an object: %w", err)
		}
		if _, err := fmt.Fprintf(out, "---\n%s", text); err != nil {
			return fmt.Errorf("writing an object: %w", err)
		}
	}
	return nil
}

// ofAuthor returns name, labels and annotations of metadata, without what kubectl apply has added.
func ofAuthor(metadata map[string]any) map[string]any {
	kept := map[string]any{}
	for _, key := range []string{"name", "labels", "annotations"} {
		if value, exists := metadata[key]; exists {
			kept[key] = value
		}
	}
	if annotations, isMap := kept["annotations"].(map[string]any); isMap {
		delete(annotations, corev1.LastAppliedConfigAnnotation)
		if len(annotations) == 0 {
			delete(kept, "annotations")
		}
	}
	return kept
}
