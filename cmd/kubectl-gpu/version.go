package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kubeversion "k8s.io/apimachinery/pkg/version"

	"github.com/clusterpolicy/gpu-operator/internal/cli/preview"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/version"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// versionOptions are the flags of version.
type versionOptions struct {
	namespace, output string
	// client: only the version of the plugin.
	client     bool
	connection connection
}

// versions is what version prints as JSON. Fields are only added to it.
type versions struct {
	Plugin string `json:"plugin"`
	// Operator is absent if its Deployment was not found.
	Operator   *operatorVersion `json:"operator,omitempty"`
	Kubernetes string           `json:"kubernetes,omitempty"`
	// Images are those that the operands run, sorted by operand and image.
	Images []operandImage `json:"images,omitempty"`
	// Skew has a sentence for each pair of versions that do not fit, or of which that is unknown.
	Skew []string `json:"skew,omitempty"`
}

// operatorVersion is the operator by its Deployment.
type operatorVersion struct {
	// Version is empty if neither the tag of the image nor a label has it.
	Version   string `json:"version,omitempty"`
	Image     string `json:"image"`
	Namespace string `json:"namespace"`
}

// operandImage is an image that an operand runs.
type operandImage struct {
	Name  string `json:"name"`
	Image string `json:"image"`
}

func versionCommand() *cobra.Command {
	o := versionOptions{}
	command := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of the plugin, the operator, Kubernetes and the operands, and which do not fit",
		Long: `Show the version of this plugin, those of the operator and of Kubernetes in the cluster, and the images of the
operands. It warns if the plugin is older or newer than the operator, or Kubernetes is outside of the range that this
release supports.

The version of the operator is the tag of its image, or else what the chart has written on its Deployment. The images
are those of the operands' DaemonSets, without the operator's own image beside others.

It needs the right to list ClusterPolicies, and to list Deployments and DaemonSets in the operator's namespace. --client
reads nothing of a cluster.

Exit codes: 0 success, also with warnings, 1 the cluster cannot be read: what is known is printed, 2 wrong usage.`,
		Example: `  kubectl gpu version
  kubectl gpu version --client
  kubectl gpu version -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := oneOf("output", o.output, formats); err != nil {
				return err
			}
			found := versions{Plugin: version.Version}
			var unread error
			if !o.client {
				unread = o.read(cmd.Context(), &found)
			}
			if err := o.print(cmd.OutOrStdout(), &found); err != nil {
				return failure{err}
			}
			if unread != nil {
				return failure{unread}
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.BoolVar(&o.client, "client", false, "only the version of the plugin: no cluster is called")
	flags.StringVarP(&o.namespace, "namespace", "n", "", operatorNamespaceUsage)
	flags.StringVarP(&o.output, "output", "o", formatText, "format of the output: text, json or yaml")
	o.connection.addFlags(flags)
	completeFlag(command, "output", fixed(formats...))
	completeFlag(command, "namespace", completing(&o.connection, namespaceNames))
	return command
}

// read adds what the cluster shows. What was read before an error stays.
func (o versionOptions) read(ctx context.Context, found *versions) error {
	asked, err := o.connection.open()
	if err != nil {
		return err
	}
	if found.Kubernetes, err = serverVersion(ctx, asked); err != nil {
		return err
	}
	sentence, err := version.OutOfRange(found.Kubernetes)
	if err != nil {
		return fmt.Errorf("reading /version: %w", err)
	}
	found.addSkew(sentence)
	namespace := o.namespace
	if namespace == "" {
		policy, err := activePolicyOf(ctx, asked)
		if err != nil {
			return err
		}
		namespace = namespaceOf(policy)
	}
	if found.Operator, err = readOperator(ctx, asked, namespace); err != nil {
		return err
	}
	if found.Operator == nil {
		return fmt.Errorf("namespace %s has no Deployment of the operator: name another one with --namespace", namespace)
	}
	found.addSkew(version.Skew(found.Plugin, cmp.Or(found.Operator.Version, found.Operator.Image)))
	found.Images, err = readImages(ctx, asked, namespace)
	return err
}

func (v *versions) addSkew(sentence string) {
	if sentence != "" {
		v.Skew = append(v.Skew, sentence)
	}
}

// serverVersion returns the version of the cluster's Kubernetes, such as v1.34.2.
func serverVersion(ctx context.Context, asked *session) (string, error) {
	text, _, err := asked.read(ctx, "/version", nil, runtime.ContentTypeJSON, maxVersion)
	if err != nil {
		return "", err
	}
	server := kubeversion.Info{}
	if err := json.Unmarshal(text, &server); err != nil {
		return "", fmt.Errorf("reading /version: %w", err)
	}
	return server.GitVersion, nil
}

// readOperator returns the operator by its Deployment in a namespace; nil if there is none.
func readOperator(ctx context.Context, asked *session, namespace string) (*operatorVersion, error) {
	var found *operatorVersion
	err := listTyped(ctx, asked, "deployments", namespace, metav1.ListOptions{}, func(deployment *appsv1.Deployment) {
		container := preview.OperatorOf(deployment)
		if container == nil {
			return
		}
		found = &operatorVersion{
			Version: cmp.Or(image.Tag(container.Image), deployment.Labels[labels.Version]),
			Image:   container.Image, Namespace: namespace,
		}
	})
	return found, err
}

// readImages returns the images of the operands in the operator's namespace.
func readImages(ctx context.Context, asked *session, namespace string) ([]operandImage, error) {
	var found []operandImage
	options := metav1.ListOptions{LabelSelector: labels.ManagedBy + "=" + labels.ManagedByValue}
	err := listTyped(ctx, asked, "daemonsets", namespace, options, func(ds *appsv1.DaemonSet) {
		for _, reference := range imagesIn(ds) {
			found = append(found, operandImage{Name: ds.Labels[labels.Operand], Image: reference})
		}
	})
	slices.SortFunc(found, func(a, b operandImage) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Image, b.Image))
	})
	return slices.Compact(found), err
}

// imagesIn returns the images of a DaemonSet, without the operator's own unless it has no other.
func imagesIn(ds *appsv1.DaemonSet) []string {
	spec := &ds.Spec.Template.Spec
	var all []string
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			all = append(all, containers[i].Image)
		}
	}
	others := slices.DeleteFunc(slices.Clone(all), func(reference string) bool {
		return reference == ds.Annotations[labels.HelperImage]
	})
	if len(others) == 0 {
		return all
	}
	return others
}

// listTyped hands each object of a resource of apps/v1 in a namespace to each.
func listTyped[T any](
	ctx context.Context, asked *session, resource, namespace string, options metav1.ListOptions, each func(*T),
) error {
	var broken error
	of := asked.objects.Resource(appsv1.SchemeGroupVersion.WithResource(resource)).Namespace(namespace)
	_, err := list(ctx, of.List, options, func(object *unstructured.Unstructured) {
		typed := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
			broken = fmt.Errorf("%s %s: %w", resource, object.GetName(), err)
			return
		}
		each(typed)
	})
	return errors.Join(err, broken)
}

func (o versionOptions) print(out io.Writer, found *versions) error {
	return writeAs(out, o.output, found, found.text(), "the versions")
}

// text returns the versions as people read them.
func (v *versions) text() string {
	text := &strings.Builder{}
	lines := []string{"Plugin\t" + v.Plugin}
	if v.Operator != nil {
		lines = append(lines, fmt.Sprintf("Operator\t%s (%s in namespace %s)", cmp.Or(v.Operator.Version, "unknown"),
			v.Operator.Image, v.Operator.Namespace))
	}
	if v.Kubernetes != "" {
		lines = append(lines, "Kubernetes\t"+v.Kubernetes)
	}
	writeAligned(text, lines...)
	if len(v.Images) > 0 {
		rows := []string{"OPERAND\tIMAGE"}
		for _, one := range v.Images {
			rows = append(rows, one.Name+"\t"+one.Image)
		}
		text.WriteString("\n")
		writeAligned(text, rows...)
	}
	for i, sentence := range v.Skew {
		if i == 0 {
			text.WriteString("\n")
		}
		fmt.Fprintf(text, "warning: %s\n", sentence)
	}
	return text.String()
}
