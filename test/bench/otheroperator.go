package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// otherAccount is the ServiceAccount of the other operator, by which its requests are counted.
const otherAccount = "other-operator"

// otherOperator is another operator to compare with. The zero value is none.
type otherOperator struct {
	// program is the path of its program or pinnedOther, and args its arguments, separated by spaces.
	program, args string
	// policy is the path of a file with its policy, whose status.state becomes "ready". All its DaemonSets must be in
	// the namespace of this operator.
	policy string
	// env is the path of a file with its variables, as lines NAME=value.
	env string
	// manifests are the paths of files with objects that it needs, separated by commas, such as its CRDs.
	manifests string
	// version is what the heading of the figures names it by.
	version string
	// incumbent has the files of its image; nil if it needs none.
	incumbent *cluster.Incumbent
}

// register adds the flags.
func (o *otherOperator) register(flags *flag.FlagSet) {
	flags.StringVar(&o.program, "other", "",
		"program of another operator, or "+pinnedOther+" for NVIDIA's in the version that test/incumbent pins: the phase "+
			comparison+" measures it, too, in turn with this one")
	flags.StringVar(&o.args, "other-args", "", "its arguments, separated by spaces")
	flags.StringVar(&o.policy, "other-policy", "", "file with its policy")
	flags.StringVar(&o.env, "other-env", "", "file with its variables, as lines NAME=value")
	flags.StringVar(&o.manifests, "other-manifests", "",
		"comma-separated files with objects that it needs, such as its CRDs")
	flags.StringVar(&o.version, "other-version", "", "its name and version, for the heading of the figures")
}

// check returns an error unless there is none, or all that it needs.
func (o *otherOperator) check() error {
	switch {
	case *o == otherOperator{program: pinnedOther}:
		return nil
	case o.program == pinnedOther:
		return errors.New("-other=" + pinnedOther + ": the other flags about another operator have no effect")
	case *o == otherOperator{}, o.program != "" && o.policy != "" && o.version != "":
		return nil
	case o.program == "":
		return errors.New("-other is missing: the other flags about another operator need it")
	default:
		return errors.New("-other: want -other-policy and -other-version, too")
	}
}

// installOther creates what the other operator needs, and its account.
func installOther(ctx context.Context, e *env) error {
	if err := e.cluster.AddAdministrator(ctx, namespace, otherAccount); err != nil {
		return err
	}
	for file := range strings.SplitSeq(e.other.manifests, ",") {
		if file = strings.TrimSpace(file); file == "" {
			continue
		}
		objects, err := cluster.ReadObjects(file)
		if err != nil {
			return err
		}
		if err := cluster.InstallObjects(ctx, e.cluster.SimulatorConfig, objects); err != nil {
			return err
		}
	}
	return nil
}

// startOther runs the other operator.
func (e *env) startOther(ctx context.Context) error {
	variables, err := readVariables(e.other.env)
	if err != nil {
		return err
	}
	kubeconfig, err := e.cluster.ServiceAccountKubeconfig(ctx, namespace, otherAccount, "")
	if err != nil {
		return err
	}
	files, err := e.otherFiles()
	if err != nil {
		return err
	}
	process, err := cluster.StartProgram(cluster.ProgramOptions{
		Binary: e.other.program, Args: strings.Fields(e.other.args), Kubeconfig: kubeconfig, Env: variables,
		Files: files, LogFile: filepath.Join(e.cluster.LogDir, otherAccount+".log"),
	})
	if err != nil {
		return err
	}
	e.track(ctx, &operator{process: process})
	return nil
}

// readVariables reads lines NAME=value; empty lines and those that begin with # are comments. No file has none.
func readVariables(file string) ([]string, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the variables of the other operator: %w", err)
	}
	var variables []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch name, _, found := strings.Cut(line, "="); {
		case line == "", strings.HasPrefix(line, "#"):
		case !found || name == "":
			return nil, fmt.Errorf("read the variables of the other operator: %s: want NAME=value, not %q", file, line)
		default:
			variables = append(variables, line)
		}
	}
	return variables, nil
}
