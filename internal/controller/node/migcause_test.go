package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	logs "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// managerLog is the log of the MIG manager.
type managerLog struct {
	text string
	err  error
	// reads are the containers whose logs were read.
	reads []string
	// during runs while the log is read; nil for nothing.
	during func()
}

func (l *managerLog) Tail(_ context.Context, namespace, pod, container string) (string, error) {
	l.reads = append(l.reads, namespace+"/"+pod+"/"+container)
	if l.during != nil {
		l.during()
	}
	if l.err != nil {
		return "", l.err
	}
	return l.text, nil
}

// says makes the log end with an error.
func (l *managerLog) says(words string) {
	l.text = `time="2026-03-11T11:57:32Z" level=info msg="Updating to MIG config: all-1g.10gb"` + "\n" +
		`time="2026-03-11T11:57:33Z" level=error msg="` + words + `"` + "\n"
}

const (
	unapplied = "a: stage Allocatable, operand mig-manager: MIG layout all-1g.10gb could not be applied: " +
		"see kubectl -n gpu-operator logs mig-manager"
	oneRead = "gpu-operator/mig-manager/nvidia-mig-manager"
)

// newMIGEnv returns an env whose node is ready with a MIG manager.
func newMIGEnv(t *testing.T) (*env, *managerLog) {
	t.Helper()
	e, log := newEnv(t), &managerLog{}
	e.reconciler.Logs = log
	e.updateNode(func(node *corev1.Node) {
		advertises("8")(node)
		node.Labels[labels.MIGCapable] = labels.True
	})
	e.publish()
	e.settle()
	e.migState("success")
	e.settle()
	e.Expect(log.reads).To(BeEmpty())
	return e, log
}

// migState requests a layout and sets its state. Operands are paused while it is applied.
func (e *env) migState(state string) {
	e.t.Helper()
	e.updateNode(func(node *corev1.Node) {
		node.Labels[labels.MIGConfig], node.Labels[labels.MIGConfigState] = sevenSmall, state
		plugin := operand.Name("device-plugin").DeployLabel()
		if node.Labels[plugin] = labels.True; state == labels.MIGStatePending {
			node.Labels[plugin] = labels.DeployPausedForMIG
		}
	})
}

// failLayout makes the layout fail, and returns the message of the condition and when the node is reconciled again.
func (e *env) failLayout() (message string, again time.Duration) {
	e.t.Helper()
	e.migState("failed")
	return e.afterMIG(0)
}

func (e *env) afterMIG(wait time.Duration) (message string, again time.Duration) {
	e.t.Helper()
	again, err := e.reconcileAfter(wait)
	e.Expect(err).NotTo(HaveOccurred())
	return assess.GPUReadyCondition(e.node()).Message, again
}

// The log is read once for a layout that fails, in the same reconcile that reports it, and again for the next failure.
func TestTheCauseOfAFailedLayout(t *testing.T) {
	e, log := newMIGEnv(t)
	log.says("no room")
	before := e.conditionWrites
	message, again := e.failLayout()
	e.Expect(message).To(Equal(unapplied + `: the MIG manager: "no room"`))
	e.Expect(again).To(BeZero())
	log.says("another error, which came later")
	for range 3 {
		message, _ = e.afterMIG(time.Minute)
		e.Expect(message).To(HaveSuffix(`"no room"`))
	}
	e.Expect(log.reads).To(Equal([]string{oneRead}))
	e.Expect(e.conditionWrites).To(Equal(before+1), "one write")
	e.Expect(e.eventReasons()).To(ConsistOf("MIGConfigFailed"))

	e.migState("pending")
	message, _ = e.afterMIG(time.Second)
	e.Expect(message).To(HaveSuffix(`"no room"`), "what happens in between is too short to be written")
	log.says("still no room")
	message, _ = e.failLayout()
	e.Expect(message).To(Equal(unapplied+`: the MIG manager: "still no room"`), "of this failure")
	e.Expect(log.reads).To(HaveLen(2))
}

// After a restart of the operator the log is read again. Nothing is written if it says the same, or is not read yet.
func TestTheCauseAfterARestart(t *testing.T) {
	e, log := newMIGEnv(t)
	log.says("no room")
	_, _ = e.failLayout()
	writes := e.writes
	e.fleet.Delete("a")
	e.settle()
	e.Expect(log.reads).To(HaveLen(2))
	e.fleet.Delete("a")
	log.err = errors.New("no route to host")
	message, _ := e.afterMIG(0)
	e.Expect(message).To(HaveSuffix(`"no room"`))
	e.Expect(e.writes).To(Equal(writes))
}

// A log that cannot be read, or does not say why, is read three times in all. The message has the command then.
func TestALogWithoutTheCause(t *testing.T) {
	for name, log := range map[string]managerLog{
		"it cannot be read": {err: errors.New("no route to host")},
		"it has no error":   {text: "Selected MIG configuration is valid\n"},
	} {
		t.Run(name, func(t *testing.T) {
			e, used := newMIGEnv(t)
			*used = log
			message, again := e.failLayout()
			e.Expect(message).To(Equal(unapplied))
			e.Expect(again).To(Equal(10 * time.Second))
			_, again = e.afterMIG(9 * time.Second)
			e.Expect(again).To(Equal(time.Second))
			e.Expect(used.reads).To(HaveLen(1), "an event of the node is no reason to read it")
			_, again = e.afterMIG(again)
			e.Expect(again).To(Equal(40 * time.Second))
			_, again = e.afterMIG(again)
			e.Expect(again).To(BeZero())
			for range 3 {
				message, _ = e.afterMIG(time.Hour)
			}
			e.Expect(used.reads).To(HaveLen(3))
			e.Expect(message).To(Equal(unapplied))
		})
	}
}

// That the log cannot be read is in the operator's own log, and nothing is if it can.
func TestALogThatCannotBeReadIsLogged(t *testing.T) {
	for name, test := range map[string]struct {
		log  managerLog
		want int
	}{
		"it can be read": {managerLog{text: "no room"}, 0},
		"it cannot":      {managerLog{err: errors.New("no route to host")}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			e, used := newMIGEnv(t)
			*used = test.log
			e.migState("failed")
			var logged []string
			sink := funcr.New(func(_, line string) { logged = append(logged, line) }, funcr.Options{})
			_, err := e.reconciler.Reconcile(logs.IntoContext(t.Context(), sink), requestFor("a"))
			e.Expect(err).NotTo(HaveOccurred())
			unread := slices.DeleteFunc(logged, func(line string) bool { return !strings.Contains(line, "cannot be read") })
			e.Expect(unread).To(HaveLen(test.want))
		})
	}
}

// The words are added when they can be read later. Those of an earlier failure do not stay if this one's are unknown.
func TestTheCauseComesLater(t *testing.T) {
	e, log := newMIGEnv(t)
	log.err = errors.New("no route to host")
	_, again := e.failLayout()
	log.err = nil
	log.says("no room")
	message, _ := e.afterMIG(again)
	e.Expect(message).To(HaveSuffix(`"no room"`))
	e.Expect(e.eventReasons()).To(ConsistOf("MIGConfigFailed"))

	e.migState("pending")
	_, _ = e.afterMIG(time.Second)
	log.err = errors.New("no route to host")
	message, again = e.failLayout()
	e.Expect(message).To(HavePrefix(unapplied))
	for again > 0 {
		message, again = e.afterMIG(again)
	}
	e.Expect(message).To(Equal(unapplied))
}

// Where the log is of no use, it is not read.
func TestTheCauseIsNotSought(t *testing.T) {
	for name, change := range map[string]func(*env){
		"the kubelet does not report": func(e *env) {
			e.updateNode(func(node *corev1.Node) {
				for i := range node.Status.Conditions {
					if condition := &node.Status.Conditions[i]; condition.Type == corev1.NodeReady {
						condition.Status = corev1.ConditionUnknown
					}
				}
			})
		},
		"the MIG manager does not run": func(e *env) { e.setPod("mig-manager", crashes) },
		"no layout is requested": func(e *env) {
			e.updateNode(func(node *corev1.Node) { delete(node.Labels, labels.MIGConfig) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, log := newMIGEnv(t)
			log.says("no room")
			e.migState("failed")
			change(e)
			e.settle()
			e.Expect(log.reads).To(BeEmpty())
		})
	}
}

// Two workers read logs at a time. The node of another one is reported without the words, which follow.
func TestFewWorkersReadLogs(t *testing.T) {
	e, log := newMIGEnv(t)
	log.says("no room")
	for range maxLogReaders {
		e.reconciler.logReaders <- struct{}{}
	}
	message, again := e.failLayout()
	e.Expect(message).To(Equal(unapplied))
	e.Expect(again).To(Equal(e.reconciler.Timing.RetryStale))
	e.Expect(log.reads).To(BeEmpty())
	<-e.reconciler.logReaders
	log.during = func() { e.Expect(e.reconciler.logReaders).To(HaveLen(maxLogReaders)) }
	message, _ = e.afterMIG(again)
	e.Expect(message).To(HaveSuffix(`"no room"`))
	e.Expect(e.reconciler.logReaders).To(HaveLen(maxLogReaders-1), "for the next one")
}

// The cause is looked for only if the layout that is requested has failed, and the operator does not know why.
func TestFailedLayouts(t *testing.T) {
	planned := plan.NodePlan{Partitioner: "mig-manager"}
	known := planned
	known.MIGLayout = "x"
	for name, test := range map[string]struct {
		logs          LogReader
		planned       plan.NodePlan
		layout, state string
		want          bool
	}{
		"failed":                {&managerLog{}, planned, "l", labels.MIGStateFailed, true},
		"without logs":          {nil, planned, "l", labels.MIGStateFailed, false},
		"without a MIG manager": {&managerLog{}, plan.NodePlan{}, "l", labels.MIGStateFailed, false},
		"of a known cause":      {&managerLog{}, known, "l", labels.MIGStateFailed, false},
		"not requested":         {&managerLog{}, planned, "", labels.MIGStateFailed, false},
		"applied":               {&managerLog{}, planned, "l", "success", false},
	} {
		s := &scope{Reconciler: &Reconciler{Options: Options{Logs: test.logs}}, node: &corev1.Node{}, basis: &fleet.Basis{}}
		s.node.Labels = map[string]string{labels.MIGConfig: test.layout, labels.MIGConfigState: test.state}
		NewWithT(t).Expect(s.plans(test.planned).hasFailedLayout()).To(Equal(test.want), name)
	}
}
