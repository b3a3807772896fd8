package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/config/crd"
)

const (
	// crdOwner owns the fields of the definitions. It differs from the owner of what the operator applies: this command
	// runs with its own rights.
	crdOwner = client.FieldOwner("gpu-operator-crds")
	// servedWithin is how long the API server may take to serve what it has stored, usually about a second.
	servedWithin = time.Minute
)

// applyCRDsCommand installs or updates the definitions in the cluster. Helm only installs crds/ once and never updates
// it, so the chart runs this before each upgrade.
func applyCRDsCommand() *cobra.Command {
	existing := false
	cmd := &cobra.Command{
		Use:   "apply-crds",
		Short: "Install or update this release's CustomResourceDefinitions",
		Long: `Install or update this release's CustomResourceDefinitions.

It needs permission to get and patch customresourcedefinitions, and to create those that do not exist yet.
It exits with 0 if the definitions are up to date, also if they already were.`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&existing, "existing", false,
		"do nothing if that of ClusterPolicy does not exist yet: the installer creates them")
	return onCluster(cmd, func(config *rest.Config, _ []string) error {
		return applyCRDs(cmd.Context(), config, existing, cmd.OutOrStdout())
	})
}

func applyCRDs(ctx context.Context, config *rest.Config, existing bool, out io.Writer) error {
	c, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	for _, definition := range crd.All() {
		found, err := applyCRD(ctx, config, c, definition, existing, out)
		if err != nil {
			return err
		}
		if !found {
			return nil
		}
		// A release that has ClusterPolicy alone may have installed it.
		existing = false
	}
	return nil
}

// applyCRD reports false if the definition must exist, but does not.
func applyCRD(
	ctx context.Context, config *rest.Config, c client.Client, own crd.Definition, existing bool, out io.Writer,
) (found bool, err error) {
	definition := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(own.Text, &definition.Object); err != nil {
		return false, fmt.Errorf("decoding CustomResourceDefinition %s: %w: this is a bug in the operator", own.Name, err)
	}
	before := &unstructured.Unstructured{}
	before.SetGroupVersionKind(definition.GroupVersionKind())
	err = c.Get(ctx, client.ObjectKeyFromObject(definition), before)
	if existing && apierrors.IsNotFound(err) {
		fmt.Fprintf(out, "CustomResourceDefinition %s does not exist yet, so there is nothing to update: "+
			"the installer creates it\n", own.Name)
		return false, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading CustomResourceDefinition %s: %w", own.Name, err)
	}
	wanted := definition.DeepCopy()
	err = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(definition), crdOwner, client.ForceOwnership)
	if err != nil {
		return false, fmt.Errorf("applying CustomResourceDefinition %s: %w", own.Name, err)
	}
	if definition.GetResourceVersion() == before.GetResourceVersion() {
		fmt.Fprintf(out, "CustomResourceDefinition %s is up to date\n", own.Name)
		return true, nil
	}
	fmt.Fprintf(out, "CustomResourceDefinition %s is applied\n", own.Name)
	return true, awaitServed(ctx, config, own, wanted.Object, out)
}

// awaitServed returns once the API server serves the new fields: a policy that is applied before loses them. With
// several API servers it checks only one.
func awaitServed(
	ctx context.Context, config *rest.Config, own crd.Definition, definition map[string]any, out io.Writer,
) error {
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	wanted := crd.SchemaOf(definition, own.Kind.Version)
	err = wait.PollUntilContextTimeout(ctx, 250*time.Millisecond, servedWithin, true, func(context.Context) (bool, error) {
		served, err := servedSchema(disco.OpenAPIV3(), own.Kind)
		if apierrors.IsForbidden(err) {
			fmt.Fprintln(out, "Not permitted to read the API server's OpenAPI schema: whether it serves the new definition "+
				"yet is not checked; wait some seconds before applying its objects")
			return true, nil
		}
		if err != nil {
			fmt.Fprintln(out, "Reading the API server's OpenAPI schema failed, retrying:", err)
		}
		return err == nil && len(crd.Missing(wanted, served)) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("the API server does not serve the new CustomResourceDefinition %s after %s: %w: run this "+
			"command again", own.Name, servedWithin, err)
	}
	return nil
}

// servedSchema returns the schema of a kind that the API server publishes; nil if none.
func servedSchema(published openapi.Client, kind schema.GroupVersionKind) (map[string]any, error) {
	paths, err := published.Paths()
	if err != nil {
		return nil, err
	}
	group, there := paths["apis/"+kind.GroupVersion().String()]
	if !there {
		return nil, nil
	}
	text, err := group.Schema("application/json")
	if err != nil {
		return nil, err
	}
	document := struct {
		Components struct {
			Schemas map[string]map[string]any `json:"schemas"`
		} `json:"components"`
	}{}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("decoding the API server's OpenAPI schema: %w", err)
	}
	return document.Components.Schemas["com.nvidia."+kind.Version+"."+kind.Kind], nil
}
