package explain

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

// maxCommands bounds the commands of a finding.
const maxCommands = 3

// Log is a log that shows the cause of a finding.
type Log struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container"`
	// Previous: the log is that of the container before its last restart.
	Previous bool `json:"previous,omitempty"`
	// Lines are the last ones; none unless they were read.
	Lines []string `json:"lines,omitempty"`
}

// Command returns the command that prints the log.
func (l *Log) Command() string {
	command := fmt.Sprintf("kubectl -n %s logs %s -c %s", l.Namespace, l.Pod, l.Container)
	if l.Previous {
		command += " --previous"
	}
	return command
}

// addCommands adds what can be pasted for a finding with a reason of the API: it shows the cause, or takes the next
// step. operand is the one that the finding is about; empty if that is not known.
func (in NodeInput) addCommands(f *Finding, operand string) {
	node := in.Node.Name
	switch f.Reason {
	case v1.ReasonNodeNotReady, v1.ReasonNodeUnreachable:
		f.Commands = []string{"kubectl describe node " + node}
		return
	case v1.ReasonExcluded:
		f.Commands = in.removal(labels.DeployOperands)
		return
	case v1.ReasonDevicePluginOff:
		f.Commands = in.removal(labels.DeployDevicePlugin)
		return
	case v1.ReasonQuotaExceeded:
		f.Commands = []string{fmt.Sprintf("kubectl -n %s describe resourcequota", in.Namespace)}
		return
	case v1.ReasonPodSecurityDenied:
		f.Commands = []string{"kubectl describe namespace " + in.Namespace}
		return
	case v1.ReasonAdmissionDenied, v1.ReasonFailedCreate:
		// The Events of the DaemonSet are all that there is of pods that cannot be created.
		f.Commands = []string{fmt.Sprintf("kubectl -n %s describe daemonset -l %s=%s", in.Namespace, labels.Operand, operand)}
		return
	}
	for _, pod := range in.podsOf(f.Reason, operand) {
		if len(f.Commands) == maxCommands {
			return
		}
		log := LogOf(pod)
		if log == nil {
			f.Commands = append(f.Commands, fmt.Sprintf("kubectl -n %s describe pod %s", pod.Namespace, pod.Name))
			continue
		}
		f.Commands = append(f.Commands, log.Command())
		if f.Log == nil {
			f.Log = log
		}
	}
}

// podsOf returns the pods of an operand. If that is not known, as of an upgrade, it is the only one that crashes.
func (in NodeInput) podsOf(reason, operand string) []*corev1.Pod {
	var found []*corev1.Pod
	for i := range in.Pods {
		pod := &in.Pods[i]
		crashes := reason == v1.ReasonCrashLoopBackOff && readiness.CulpritOf(pod).Crashed
		if operand != "" && pod.Labels[labels.Operand] == operand || operand == "" && crashes {
			found = append(found, pod)
		}
	}
	if operand == "" && len(found) > 1 {
		return nil
	}
	return found
}

// LogOf returns the log that shows why a pod is not ready, or what it does; nil if its container has not run.
func LogOf(pod *corev1.Pod) *Log {
	culprit := readiness.CulpritOf(pod)
	if culprit.Container == "" {
		return nil
	}
	return &Log{Namespace: pod.Namespace, Pod: pod.Name, Container: culprit.Container, Previous: culprit.Previous}
}

// removal is the command that removes a label by which a user keeps operands off the node; none if it has no such
// label.
func (in NodeInput) removal(label string) []string {
	if in.Node.Labels[label] != labels.False {
		return nil
	}
	return []string{fmt.Sprintf("kubectl label node %s %s-", in.Node.Name, label)}
}
