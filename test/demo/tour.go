package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	children "github.com/clusterpolicy/gpu-operator/test/process"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	// tourNodes is how many nodes the tour has. The last one runs the real gpu-node.
	tourNodes = 4
	// look is the time between two looks at what a step must show, and patience how long it may take.
	look     = time.Second
	patience = 3 * time.Minute
)

// tourFault is what the tour begins with.
var tourFault = fault{operand: "driver", node: nodeName(1), mode: simulator.CrashLoop}

// step is a command of the tour.
type step struct {
	// scene is the title of the scene that begins with the step; empty in one that goes on.
	scene string
	// command is what a reader types.
	command string
	// see is what to look at, and words what the output has to have: the command is repeated until it has them. Without
	// them it runs once.
	see   string
	words []string
}

// tour is what make demo TOUR=1 shows. Its nodes are those of tourNodes and its fault is tourFault.
var tour = []step{
	{scene: "One policy makes the GPUs of a cluster usable", command: "kubectl apply -f " + samplePolicy},
	{
		command: "kubectl gpu status",
		see:     "three nodes are ready, and the driver of gpu-00001 fails",
		words:   []string{"3 of 4 nodes ready", "gpu-00001 False Driver", "CrashLoopBackOff"},
	},
	{
		scene: "A broken node says why", command: "kubectl gpu explain gpu-00001",
		see:   "the stage, the words of the container that has failed, and the next step",
		words: []string{"Driver not reached: CrashLoopBackOff", "simulated failure", "Next:"},
	},
	{command: "kubectl annotate node gpu-00001 demo/repair=driver"},
	{command: "kubectl -n gpu-operator delete pod --selector app=nvidia-driver-daemonset " +
		"--field-selector spec.nodeName=gpu-00001"},
	{
		command: "kubectl get clusterpolicy", see: "all four nodes are ready",
		words: []string{"cluster-policy ready 4/4"},
	},
	{
		scene: "A GPU falls off the bus",
		command: "kubectl patch clusterpolicy cluster-policy --type=merge " +
			`-p '{"spec": {"health": {"agent": {"enabled": true}, "actions": {"all": "taint"}}}}'`,
	},
	{command: "kubectl wait --for=condition=nvidia.com/GPUHealthy node --all --timeout=3m"},
	{command: "kubectl annotate node gpu-00003 demo/xid=79"},
	{
		command: "kubectl gpu explain gpu-00003", see: "the GPU that is lost, and what it needs",
		words: []string{"not ready, 7 of 8 GPUs usable", "GPULost: ", "Xid 79", "reboot"},
	},
	{
		command: "kubectl describe node gpu-00003 | grep -E '^Taints|nvidia.com/GPU'",
		see:     "the condition, and the taint that keeps new pods away",
		words:   []string{"nvidia.com/gpu-operator.unhealthy:NoSchedule", "nvidia.com/GPUHealthy False", "tainted"},
	},
	{command: "kubectl annotate node gpu-00003 demo/xid-"},
	{
		command: "kubectl gpu status", see: "after the reset, all GPUs are usable again",
		words: []string{"4 of 4 nodes ready, 32 of 32 GPUs usable"},
	},
	{
		scene: "Four pods share a GPU",
		command: "kubectl patch clusterpolicy cluster-policy --type=merge " +
			`-p '{"spec": {"sharing": {"timeSlicing": {"replicas": 4}}}}'`,
	},
	{
		command: "kubectl gpu status", see: "32 pods can have a GPU on each node",
		words: []string{"4 of 4 nodes ready, 32 of 32 GPUs usable, 0 whole GPUs free", "time-slicing x4"},
	},
	{
		scene: "The driver is upgraded node by node",
		command: "kubectl patch clusterpolicy cluster-policy --type=merge -p '" + upgrade +
			"' --dry-run=server -o yaml | kubectl gpu plan -f -",
		see: "which nodes would restart their drivers, and in which rounds", words: []string{"4 nodes restart their drivers"},
	},
	{command: "kubectl patch clusterpolicy cluster-policy --type=merge -p '" + upgrade + "'"},
	{
		command: "kubectl gpu status", see: "the column UPGRADE has what happens on each node",
		words: []string{"UPGRADE"},
	},
	{
		command: "kubectl get clusterpolicy -o jsonpath='{.items[0].status.upgrade}'",
		see:     "four nodes are done", words: []string{`"done":4`},
	},
	{command: "kubectl gpu status", see: "all have the new driver", words: []string{"4 of 4 nodes ready", "580.178.04"}},
	{scene: "The operator leaves nothing behind", command: "make undeploy"},
	{
		command: "kubectl get nodes -o yaml | grep -E 'nvidia.com/(gpu-operator|GPUReady)' || echo 'nothing is left'",
		see:     "no label and no condition of the operator", words: []string{"nothing is left"},
	},
}

// upgrade is the edit of the policy that upgrades the drivers of two nodes at a time.
const upgrade = `{"spec": {"driver": {"version": "580.178.04", ` +
	`"upgradePolicy": {"autoUpgrade": true, "maxParallelUpgrades": 2, "maxUnavailable": "50%"}}}}`

// showTour shows the tour on a cluster without a policy, and returns a line for programs.
func (d *demo) showTour(ctx context.Context, e *env) (last string, err error) {
	if err := e.simulator.CanRunProcesses(); err != nil {
		return "", fmt.Errorf("TOUR=1 needs a node that runs gpu-node: %w", err)
	}
	bin, err := installKubectl(ctx, d.stdout)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(bin)
	g := guide{out: d.stdout, look: look, patience: patience, env: append(os.Environ(),
		"KUBECONFIG="+e.cluster.Kubeconfig(), "PATH="+bin+":"+os.Getenv("PATH"), "NO_COLOR=1",
		// Those of make demo are not for what a reader types.
		"MAKEFLAGS=", "MAKELEVEL=")}
	if err := g.show(ctx, tour); err != nil {
		return "", err
	}
	shown := scenes(tour)
	return fmt.Sprintf("tour: %d of %d scenes", shown, shown), nil
}

// installKubectl makes a folder with kubectl and its plugin.
func installKubectl(ctx context.Context, progress io.Writer) (bin string, err error) {
	kubectl, err := cluster.EnsureKubectl(".")
	if err != nil {
		return "", err
	}
	plugin, err := cluster.BuildPlugin(ctx, progress)
	if err != nil {
		return "", err
	}
	if bin, err = os.MkdirTemp("", "gpu-operator-bin-"); err != nil {
		return "", fmt.Errorf("install kubectl: %w", err)
	}
	return bin, errors.Join(os.Symlink(kubectl, filepath.Join(bin, "kubectl")),
		os.Symlink(plugin, filepath.Join(bin, "kubectl-gpu")))
}

// guide shows steps.
type guide struct {
	out io.Writer
	// env is the environment of the commands.
	env            []string
	look, patience time.Duration
}

// scenes counts the scenes of the steps.
func scenes(steps []step) int {
	count := 0
	for _, s := range steps {
		if s.scene != "" {
			count++
		}
	}
	return count
}

// show shows the steps until one of them does not show what it must.
func (g guide) show(ctx context.Context, steps []step) error {
	scene := 0
	for _, s := range steps {
		if s.scene != "" {
			scene++
			fmt.Fprintf(g.out, "\n=== %d/%d %s ===\n", scene, scenes(steps), s.scene)
		}
		if err := g.play(ctx, s); err != nil {
			return fmt.Errorf("scene %d of the tour: %w", scene, err)
		}
	}
	return nil
}

// play shows one step.
func (g guide) play(ctx context.Context, s step) error {
	fmt.Fprintf(g.out, "\n$ %s\n", s.command)
	if s.see != "" {
		fmt.Fprintf(g.out, "# See: %s.\n", s.see)
	}
	for end := time.Now().Add(g.patience); ; {
		output, err := g.run(ctx, s.command)
		missing := s.missing(output)
		if missing != "" && time.Now().Before(end) && sleep(ctx, g.look) {
			continue
		}
		fmt.Fprint(g.out, output)
		if output != "" && !strings.HasSuffix(output, "\n") {
			fmt.Fprintln(g.out)
		}
		switch {
		case missing != "":
			return fmt.Errorf("%s does not show %q within %s", s.command, missing, g.patience)
		case err != nil:
			return fmt.Errorf("%s: %w", s.command, err)
		}
		return nil
	}
}

// missing returns the first of the words that the output does not have; empty if it has all. Only the kind and the
// amount of space between words may differ.
func (s step) missing(output string) string {
	plain := strings.Join(strings.Fields(output), " ")
	for _, words := range s.words {
		if !strings.Contains(plain, words) {
			return words
		}
	}
	return ""
}

// sleep reports whether ctx has not ended meanwhile.
func sleep(ctx context.Context, pause time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return true
	}
}

// run runs a command in bash, and returns what it prints. It and all that it starts end when patience does.
func (g guide) run(ctx context.Context, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, g.patience)
	defer cancel()
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", command)
	cmd.Env, cmd.Stdout, cmd.Stderr = g.env, &output, &output
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := children.Start(cmd); err != nil {
		return "", err
	}
	err := cmd.Wait()
	return output.String(), cmp.Or(ctx.Err(), err)
}
