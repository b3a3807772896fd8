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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/config/crd"
)

const (
	// crdOwner owns the definition's fields. It differs from the owner of what the operator applies: this command
	// runs with its own rights.
	crdOwner = client.FieldOwner("gpu-operator-crds")
	// servedWithin is how long the API server may take to serve what it has stored, usually about a second.
	servedWithin = time.Minute
)

// applyCRDsCommand installs or updates the definition in the cluster. Helm only installs crds/ once and never updates
// it, so the chart runs this before each upgrade.
func applyCRDsCommand() *cobra.Command {
	kubeconfig, existing := "", false
	cmd := &cobra.Command{
		Use:   "apply-crds",
		Short: "Install or update this release's CustomResourceDefinition",
		Long: `Install or update this release's CustomResourceDefinition.

It needs permission to get and patch customresourcedefinitions, and to create them if there is none yet.
It exits with 0 if the definition is up to date, also if it already was.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctrl.SetLogger((&logOptions{}).logger())
			config, err := restConfig(kubeconfig)
			if err != nil {
				return err
			}
			return applyCRDs(cmd.Context(), config, existing, cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&existing, "existing", false,
		"do nothing if the definition does not exist yet: the installer creates it")
	addKubeconfig(cmd.Flags(), &kubeconfig)
	return cmd
}

func applyCRDs(ctx context.Context, config *rest.Config, existing bool, out io.Writer) error {
	definition := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(crd.ClusterPolicy, &definition.Object); err != nil {
		return fmt.Errorf("decoding CustomResourceDefinition %s: %w: this is a bug in the operator", crd.Name, err)
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	before := &unstructured.Unstructured{}
	before.SetGroupVersionKind(definition.GroupVersionKind())
	err = c.Get(ctx, client.ObjectKeyFromObject(definition), before)
	if existing && apierrors.IsNotFound(err) {
		fmt.Fprintf(out, "CustomResourceDefinition %s does not exist yet, so there is nothing to update: "+
			"the installer creates it\n", crd.Name)
		return nil
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading CustomResourceDefinition %s: %w", crd.Name, err)
	}
	wanted := definition.DeepCopy()
	err = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(definition), crdOwner, client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("applying CustomResourceDefinition %s: %w", crd.Name, err)
	}
	if definition.GetResourceVersion() == before.GetResourceVersion() {
		fmt.Fprintf(out, "CustomResourceDefinition %s is up to date\n", crd.Name)
		return nil
	}
	fmt.Fprintf(out, "CustomResourceDefinition %s is applied\n", crd.Name)
	return awaitServed(ctx, config, wanted.Object, out)
}

// awaitServed returns once the API server serves the new fields: a policy that is applied before loses them. With
// several API servers it checks only one.
func awaitServed(ctx context.Context, config *rest.Config, definition map[string]any, out io.Writer) error {
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	wanted := crd.Schema(definition)
	err = wait.PollUntilContextTimeout(ctx, 250*time.Millisecond, servedWithin, true, func(context.Context) (bool, error) {
		served, err := servedSchema(disco.OpenAPIV3())
		if apierrors.IsForbidden(err) {
			fmt.Fprintln(out, "Not permitted to read the API server's OpenAPI schema: whether it serves the new definition "+
				"yet is not checked; wait some seconds before applying a ClusterPolicy")
			return true, nil
		}
		if err != nil {
			fmt.Fprintln(out, "Reading the API server's OpenAPI schema failed, retrying:", err)
		}
		return err == nil && len(crd.Missing(wanted, served)) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("the API server does not serve the new CustomResourceDefinition %s after %s: %w: run this "+
			"command again", crd.Name, servedWithin, err)
	}
	return nil
}

// servedSchema returns the schema of ClusterPolicy that the API server publishes; nil if none.
func servedSchema(published openapi.Client) (map[string]any, error) {
	paths, err := published.Paths()
	if err != nil {
		return nil, err
	}
	group, there := paths["apis/"+v1.GroupVersion.String()]
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
	return document.Components.Schemas["com.nvidia."+v1.GroupVersion.Version+"."+v1.ClusterPolicyKind.Kind], nil
}
