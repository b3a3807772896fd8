package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clusterpolicy/gpu-operator/internal/cli/preview"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/version"
	"github.com/clusterpolicy/gpu-operator/internal/policy/fieldnotes"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// renderOptions are the flags of render.
type renderOptions struct {
	policy, nodes    string
	namespace, image string
	// server is the version of the cluster's Kubernetes, empty if not given.
	server     string
	monitoring bool
	// stored: the policy and the NVIDIADrivers are in a cluster as the file has them.
	stored bool
	// env are variables of the operator that replace default images, or name its proxy.
	env environment
	// toolkit is the file with the ImageStream of OpenShift's driver toolkit, empty if not given.
	toolkit string
	// openShift is the file with OpenShift's Proxy and ClusterVersion, empty if not given.
	openShift string
}

// renderHelp is the description of render.
const renderHelp = `Print every object that the operator would apply for a ClusterPolicy on these nodes, as YAML.

It reads the policy and the nodes from files and contacts no cluster. What would not be applied is listed
on standard error, with one line for each operand and for each node on which an operand does not run, and so is what
the API server would refuse: see kubectl gpu validate.

Objects that the policy names may be in its file: ConfigMaps, of which the driver's pods mount each key, Secrets and
PriorityClasses. Each that is not there counts as existing, and is listed on standard error: what follows from its
content is missing, such as mounts and digests. NVIDIADrivers must be in the file if the policy uses them
(spec.driver.useNvidiaDriverCRD). If the operator has variables for default images or for its proxy, repeat them with
--env. Its flags count as the defaults.

The objects are those of a first installation, in a cluster that has none of them. What an operator has written on the
nodes of a running cluster does not count; nodes that would keep something because of it are listed on standard error.
Owner references are omitted if the policy has no UID, and the digest of an object has them. The annotation with the
applied spec is always omitted.

Exit codes: 0 success, also if something was not read; 1 a file cannot be read, or the API server or the operator would
refuse the policy, an operand, a node pool, an NVIDIADriver or the driver of a node: the objects of the rest are
printed; 2 wrong usage. A file does not show whether an object of a cluster was edited: --stored says that it was not.`

func renderCommand() *cobra.Command {
	o, env := renderOptions{}, []string(nil)
	command := &cobra.Command{
		Use:   "render -f POLICY --nodes NODES",
		Short: "Print what the operator would apply for a policy and these nodes, without a cluster",
		Long:  renderHelp,
		Example: `  kubectl get nodes -o yaml > nodes.yaml
  kubectl gpu render -f policy.yaml --nodes nodes.yaml > objects.yaml
  kubectl gpu render -f policy.yaml --nodes nodes.yaml --env HTTPS_PROXY=http://proxy.example.com`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.checkFiles(); err != nil {
				return err
			}
			if err := o.checkServer(cmd.ErrOrStderr()); err != nil {
				return err
			}
			var err error
			if o.env, err = environmentOf(env); err != nil {
				return err
			}
			if err := o.run(cmd); err != nil {
				return failure{err}
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVarP(&o.policy, "filename", "f", "", "file with the ClusterPolicy; - reads standard input")
	flags.StringVar(&o.nodes, "nodes", "",
		"file with the Nodes, as kubectl get nodes -o yaml prints them; - reads standard input")
	flags.StringVarP(&o.namespace, "namespace", "n", "gpu-operator", "namespace of the operator and its operands")
	flags.StringVar(&o.image, "image", image.Own(), "image of the operator")
	flags.StringArrayVar(&env, "env", nil,
		"variable of the operator, as NAME=VALUE, such as DRIVER_IMAGE=... or HTTPS_PROXY=...; may be repeated")
	flags.BoolVar(&o.monitoring, "monitoring", false, "the cluster serves the kinds of the Prometheus operator")
	flags.StringVar(&o.server, "server-version", "", fmt.Sprintf(
		"version of the cluster's Kubernetes, such as v%s.0, to warn if it is not supported; it does not change the objects",
		version.NewestKubernetes))
	o.addToolkit(flags)
	flags.StringVar(&o.openShift, "openshift", "", "file with the Proxy and the ClusterVersion of OpenShift, as oc get "+
		labels.ProxyDefinition+","+labels.ClusterVersionDefinition+" -o yaml prints them")
	o.addStored(flags)
	requireFlags(command, "filename", "nodes")
	return command
}

// addToolkit adds the flag for the images of OpenShift's driver toolkit.
func (o *renderOptions) addToolkit(flags *pflag.FlagSet) {
	flags.StringVar(&o.toolkit, "driver-toolkit-images", "",
		"file with the ImageStream of OpenShift's driver toolkit, as oc get -n openshift imagestream driver-toolkit -o "+
			"yaml prints it")
}

// addStored adds the flag for what is in a cluster as it is in the file.
func (o *renderOptions) addStored(flags *pflag.FlagSet) {
	flags.BoolVar(&o.stored, "stored", false, "the objects of the file are in a cluster, and were not edited since: what "+
		"the API server would refuse of new ones, and keeps, is only noted")
}

// checkFiles fails if two files are standard input.
func (o renderOptions) checkFiles() error {
	if o.policy == stdin && o.nodes == stdin {
		return errors.New("the policy and the nodes cannot both come from standard input: give one of them as a file")
	}
	return nil
}

// checkServer warns if the cluster's version is not supported. It fails if the version cannot be parsed.
func (o renderOptions) checkServer(stderr io.Writer) error {
	if o.server == "" {
		return nil
	}
	sentence, err := version.OutOfRange(o.server)
	if err != nil {
		return fmt.Errorf("--server-version: %w", err)
	}
	if sentence != "" {
		fmt.Fprintln(stderr, "warning:", sentence)
	}
	return nil
}

func (o renderOptions) run(cmd *cobra.Command) error {
	file, err := readPolicy(o.policy, cmd.InOrStdin())
	if err != nil {
		return fmt.Errorf("reading the policy %s: %w", o.policy, err)
	}
	by, err := file.refusals(cmd.Context(), nil, o.stored)
	if err != nil {
		return err
	}
	found, err := o.compute(file, cmd.InOrStdin())
	if err != nil {
		return err
	}
	printed, err := documentsOf(found.objects)
	if err != nil {
		return err
	}
	if _, err := cmd.OutOrStdout().Write(printed); err != nil {
		return fmt.Errorf("writing the objects: %w", err)
	}
	for _, sentence := range slices.Concat(
		by.sentences, aboutPause(found.input), fieldnotes.Of(file.Policy.Spec),
		preview.AboutDrivers(file.Drivers, found.input), found.ignored, found.plan.Doubtful(),
		preview.Unread(found.plan.Catalogue, found.input), found.kept, aboutOperands(found.plan),
		aboutNodes(found.plan, found.facts),
	) {
		fmt.Fprintln(cmd.ErrOrStderr(), sentence)
	}
	return found.err(by)
}
