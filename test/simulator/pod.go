package simulator

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpolicy/gpu-operator/test/simulator/host"
)

// pod is one pod on a simulated node, as its kubelet tracks it.
type pod struct {
	// object is the pod as last read from the API; its status is only read the first time.
	object   *corev1.Pod
	uid      types.UID
	app      string
	operands []string
	// handled: the pod needs the runtime handler that the toolkit installs.
	handled bool
	ip      string
	// pulls: the operator created the pod to pull the images of a driver.
	pulls bool
	// configured is the state of its config-manager; nil if it has none.
	configured *configured
	// refused is why the kubelet does not admit the pod; admitted: it has been decided.
	refused  string
	admitted bool

	created time.Time
	// sandbox: the sandbox exists, containers can be created. After a reboot it is created again at this time.
	sandbox   bool
	recreated time.Time
	// complaint is an Event to be written; complained prevents a second one.
	complaint  string
	complained bool
	inits      []*container
	mains      []*container
	// endAt is when a deleted pod has terminated; zero while it is not deleted.
	endAt time.Time
	// provided is the run of the driver's containers whose driver is installed on the node's machine.
	provided string
	// removed: the API no longer has it, though the watch may not have reported that yet.
	removed bool
	// written is the status in the API, and writtenAt when it was written.
	written   *corev1.PodStatus
	writtenAt time.Time
	// report is when a status that waits for the next relist is due; zero: none waits.
	report time.Time
}

// appOf returns the app of a pod with these labels, without the suffix for the pool or variant of nodes that its
// DaemonSet serves.
func appOf(labels map[string]string) string {
	label := labels[appLabel]
	if labels[componentLabel] == driverComponent {
		return appDriver
	}
	for _, app := range []string{appDriver, appToolkit} {
		if strings.HasPrefix(label, app+"-") {
			return app
		}
	}
	return label
}

func newPod(object *corev1.Pod, now time.Time, ip string) *pod {
	p := &pod{object: object, uid: object.UID, app: appOf(object.Labels), created: now, ip: ip}
	for key := range object.Spec.NodeSelector {
		if operand, ok := strings.CutPrefix(key, deployPrefix); ok {
			p.operands = append(p.operands, operand)
		}
	}
	switch p.app {
	case appDriver:
		p.operands = append(p.operands, operandDriver)
	case appToolkit:
		p.operands = append(p.operands, operandToolkit)
	}
	class := object.Spec.RuntimeClassName
	p.handled = class != nil && strings.HasPrefix(*class, runtimePrefix)
	reason := reasonCreating
	if len(object.Spec.InitContainers) > 0 {
		reason = reasonInitializing
	}
	p.inits = newContainers(object.Spec.InitContainers, reason, now)
	p.mains = newContainers(object.Spec.Containers, reason, now)
	p.pulls = pullsDriver(object)
	p.configured = newConfigured(object)
	return p
}

func newContainers(specs []corev1.Container, reason string, now time.Time) []*container {
	containers := make([]*container, 0, len(specs))
	for _, spec := range specs {
		containers = append(containers, &container{spec: spec, program: readProgram(spec), reason: reason, since: now})
	}
	return containers
}

// advance advances the pod to the present.
func (p *pod) advance(ctx context.Context, now time.Time, n *node) {
	if p.ending() || !p.admit(n) {
		return
	}
	if p.handled && !p.sandbox && !n.handlerInstalled() {
		if !p.complained {
			p.complained = true
			p.complaint = `Failed to create pod sandbox: rpc error: code = Unknown desc = failed to get sandbox runtime: ` +
				`no runtime for "` + *p.object.Spec.RuntimeClassName + `" is configured`
		}
		return
	}
	p.sandbox = true
	at := conditions{now: now, node: n, pod: p, init: true, timing: n.sim.timing, exitAfter: p.exitAfter()}
	at.start = func(c host.Container) (*host.Process, error) { return n.host.Start(ctx, c) }
	for _, c := range p.inits {
		at.duration = n.sim.dice.vary(n.initDuration(c.program), n.name, p.app, c.spec.Name)
		if !c.runInit(at) {
			return
		}
	}
	at.init = false
	for i, c := range p.mains {
		at.duration = n.sim.dice.vary(n.sim.timing.ready(p.app), n.name, p.app, c.spec.Name)
		at.fault, at.log = p.faultOf(n, i)
		c.run(at)
	}
}

// faultOf returns how a main container fails, and the log if the cause is in its configuration.
func (p *pod) faultOf(n *node, index int) (fault Mode, log string) {
	c := p.mains[index]
	if log = p.configFailure(c); log == "" && index == 0 {
		log = n.pluginFailure(p)
	}
	switch {
	case log != "":
		return CrashLoop, log
	case p.pulls:
		return n.pullFault(c.spec.Image), ""
	case index == 0:
		return cmp.Or(n.sim.faults.of(n.name, p.operands), n.sim.faults.ofImage(c.spec.Image)), ""
	default:
		return "", ""
	}
}

// admit reports whether the kubelet has admitted the pod.
func (p *pod) admit(n *node) bool {
	if !p.admitted {
		p.admitted, p.refused = true, n.refusal(p)
	}
	return p.refused == ""
}

// exitAfter returns how long the containers of a pod run until they succeed, if it is to succeed.
func (p *pod) exitAfter() time.Duration {
	if p.object.Spec.RestartPolicy == corev1.RestartPolicyAlways {
		return 0
	}
	if p.pulls {
		return time.Nanosecond
	}
	// A malformed value is ignored: the pod keeps running, which a test notices.
	after, _ := time.ParseDuration(p.object.Annotations[ExitAfterAnnotation])
	return after
}

// ending reports whether the pod is being deleted.
func (p *pod) ending() bool { return p.removed || !p.endAt.IsZero() }

// ready reports whether all containers are ready, from the node's point of view: what a deleted pod provided is gone
// immediately.
func (p *pod) ready() bool {
	return !p.ending() && !slices.ContainsFunc(p.mains, func(c *container) bool { return !c.provides() })
}

// stop starts the termination of a deleted pod.
func (p *pod) stop(end time.Time) {
	p.endAt = end
	grace := stopped
	if seconds := p.object.DeletionGracePeriodSeconds; seconds != nil {
		grace = time.Duration(*seconds) * time.Second
	}
	for _, c := range slices.Concat(p.inits, p.mains) {
		c.stop(grace)
	}
}

// lingers reports whether processes of the pod still run.
func (p *pod) lingers() bool {
	return slices.ContainsFunc(slices.Concat(p.inits, p.mains), (*container).lingers)
}

// drives reports whether the pod's driver works: its first container provides it, and the others depend on that.
func (p *pod) drives() bool {
	return p.app == appDriver && !p.ending() && len(p.mains) > 0 && p.mains[0].provides()
}

// instance identifies this run of the driver container.
func (p *pod) instance() string { return string(p.uid) + "/" + p.mains[0].id() }

// next returns when the pod has to be processed again.
func (p *pod) next() time.Time {
	if p.removed {
		return time.Time{}
	}
	if p.ending() && p.lingers() {
		// The exit of a process is an event.
		return time.Time{}
	}
	if p.ending() {
		return p.endAt
	}
	next := p.report
	for _, c := range slices.Concat(p.inits, p.mains) {
		next = earlier(next, c.next())
	}
	return next
}
