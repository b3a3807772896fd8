package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/validate"
)

// plugin has the flags of validate plugin.
type plugin struct {
	nodeName          string
	serviceAccountDir string
	migStrategy       string
	withWorkload      bool
	testPodTimeout    time.Duration
}

// pluginVariables are the variables of NVIDIA's validator.
var pluginVariables = variables{
	"node-name":     "NODE_NAME",
	"mig-strategy":  "MIG_STRATEGY",
	"with-workload": "WITH_WORKLOAD",
}

var errNoNode = errors.New(
	"no node given; set the environment variable NODE_NAME from the field spec.nodeName, or --node-name")

const (
	// testPodInterval and testPodMaxInterval are the first and the longest pause between two test pods: a node that
	// is broken for days must not cost the API server a pod every few seconds.
	testPodInterval    = 30 * time.Second
	testPodMaxInterval = 5 * time.Minute
)

func validatePlugin() *cobra.Command {
	var (
		validation validation
		plugin     plugin
	)
	command := &cobra.Command{
		Use:   "plugin",
		Short: "Require a GPU or MIG device that can be allocated on this node",
		Long: `Require a GPU or MIG device that can be allocated on this node.

With --with-workload a test pod must also get one through the scheduler, and compute on it; a node all of whose
GPUs are in use passes. The environment describes the pod: VALIDATOR_IMAGE,
VALIDATOR_IMAGE_PULL_POLICY, VALIDATOR_IMAGE_PULL_SECRETS (separated by commas),
VALIDATOR_RUNTIME_CLASS and VALIDATOR_PRIORITY_CLASS. It is owned by the pod of POD_NAME and POD_UID, and
deleted with it.

With --with-workload the defaults are --interval=30s, --max-interval=5m, and an --attempt-timeout of 1m
above --test-pod-timeout.

Other environment variables, overridden by the flags:
  NODE_NAME           as --node-name
  MIG_STRATEGY        as --mig-strategy
  WITH_WORKLOAD=true  as --with-workload`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := plugin.complete(command.Flags()); err != nil {
				return err
			}
			strategy, err := validate.MIGStrategyNamed(plugin.migStrategy)
			if err != nil {
				return fmt.Errorf("--mig-strategy or MIG_STRATEGY: %w", err)
			}
			if plugin.withWorkload {
				if err := validation.slowDown(command.Flags(), plugin.testPodTimeout); err != nil {
					return err
				}
			}
			return validation.run(labels.MarkerPlugin, func() (validate.Check, error) { return plugin.check(strategy) })
		},
	}
	validation.register(command.Flags())
	plugin.register(command.Flags())
	return command
}

func (p *plugin) register(flags *pflag.FlagSet) {
	flags.StringVar(&p.nodeName, "node-name", "", "name of the node")
	flags.StringVar(&p.serviceAccountDir, "service-account-dir", nodeapi.ServiceAccountDir,
		"directory of the pod's token and the API server's CA certificate")
	flags.StringVar(&p.migStrategy, "mig-strategy", "",
		"how the device plugin advertises MIG devices: none, single or mixed; if empty every GPU resource counts")
	flags.BoolVar(&p.withWorkload, "with-workload", false, "also run a test pod on one GPU")
	flags.DurationVar(&p.testPodTimeout, "test-pod-timeout", validate.DefaultTestPodTimeout,
		"longest time of the test pod, with a unit (4m)")
}

// complete sets flags that are not given from the environment, and validates all.
func (p *plugin) complete(flags *pflag.FlagSet) error {
	if err := pluginVariables.apply(flags); err != nil {
		return err
	}
	if p.nodeName == "" {
		return errNoNode
	}
	if !p.withWorkload {
		return nil
	}
	if p.testPodTimeout <= 0 {
		return fmt.Errorf("--test-pod-timeout=%s must be above 0s", p.testPodTimeout)
	}
	for _, required := range []string{"VALIDATOR_IMAGE", "POD_NAME", "POD_UID"} {
		if os.Getenv(required) == "" {
			return fmt.Errorf(
				"a test pod needs the environment variable %s; set it, or leave out --with-workload and WITH_WORKLOAD",
				required)
		}
	}
	return nil
}

// slowDown sets the intervals for a test pod, which may take this long, rather than for reading the Node. An attempt
// that is cut off earlier could not report what its pod waits for.
func (v *validation) slowDown(flags *pflag.FlagSet, testPod time.Duration) error {
	if !flags.Changed("attempt-timeout") {
		v.attemptTimeout = testPod + validate.TestPodAttemptMargin
	}
	if v.attemptTimeout <= testPod {
		return fmt.Errorf("--attempt-timeout=%s must be above --test-pod-timeout=%s", v.attemptTimeout, testPod)
	}
	if !flags.Changed("max-interval") {
		v.maxInterval = max(v.interval, testPodMaxInterval)
	}
	if !flags.Changed("interval") {
		v.interval = min(testPodInterval, v.maxInterval)
	}
	return nil
}

func (p *plugin) check(strategy validate.MIGStrategy) (validate.Check, error) {
	client, err := nodeapi.InCluster(p.serviceAccountDir)
	if err != nil {
		return nil, fmt.Errorf("plugin cannot be validated: %w", err)
	}
	check := validate.Plugin{Node: p.nodeName, Client: client, Strategy: strategy}
	if p.withWorkload {
		namespace, err := os.ReadFile(filepath.Join(p.serviceAccountDir, "namespace"))
		if err != nil {
			return nil, fmt.Errorf("plugin cannot be validated: the namespace of this pod cannot be read: %w", err)
		}
		check.TestPod = p.run(client, strings.TrimSpace(string(namespace)))
	}
	return check.Check, nil
}

// run runs the test pod that the environment describes. The names of the variables are those of NVIDIA's validator in
// spec.validator.plugin.env.
func (p *plugin) run(client *nodeapi.Client, namespace string) func(context.Context, string) error {
	return validate.TestPod{
		Client: client, Node: p.nodeName, Namespace: namespace,
		Owner: nodeapi.OwnerReference{
			APIVersion: "v1",
			Kind:       "Pod",
			Name:       os.Getenv("POD_NAME"),
			UID:        os.Getenv("POD_UID"),
		},
		Image:         os.Getenv("VALIDATOR_IMAGE"),
		PullPolicy:    os.Getenv("VALIDATOR_IMAGE_PULL_POLICY"),
		PullSecrets:   list(os.Getenv("VALIDATOR_IMAGE_PULL_SECRETS")),
		RuntimeClass:  os.Getenv("VALIDATOR_RUNTIME_CLASS"),
		PriorityClass: cmp.Or(os.Getenv("VALIDATOR_PRIORITY_CLASS"), labels.TestPodPriorityClass),
		Timeout:       p.testPodTimeout, FullAfter: validate.DefaultFullAfter, EndTimeout: validate.DefaultEndTimeout,
		Log: newLog(),
	}.Run
}

// list returns the parts between the commas, without the empty ones.
func list(commas string) []string {
	return strings.FieldsFunc(commas, func(r rune) bool { return r == ',' || r == ' ' })
}
