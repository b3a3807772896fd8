package readiness_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

// now is the time at which pods are assessed.
var now = time.Unix(1_000_000, 0)

// pod returns a scheduled pod that is not ready, with changes.
func pod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "p",
			Annotations: map[string]string{"nvidia.com/gpu-operator.template-digest": "now"},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodPending,
			Conditions: []corev1.PodCondition{
				{
					Type:   corev1.PodScheduled,
					Status: corev1.ConditionTrue,
				}, {Type: corev1.PodReady, Status: corev1.ConditionFalse},
			},
		},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func with(statuses ...corev1.ContainerStatus) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, statuses...) }
}

func withInit(statuses ...corev1.ContainerStatus) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, statuses...)
	}
}

func condition(kind corev1.PodConditionType, value corev1.ConditionStatus, reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for i := range p.Status.Conditions {
			if p.Status.Conditions[i].Type == kind {
				p.Status.Conditions[i] = corev1.PodCondition{
					Type:    kind,
					Status:  value,
					Reason:  reason,
					Message: message,
				}
			}
		}
	}
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func running() corev1.ContainerState {
	return corev1.ContainerState{
		Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-10 * time.Second))},
	}
}

func terminated(code int32, message string) corev1.ContainerState {
	return corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{
			ExitCode:   code,
			Message:    message,
			FinishedAt: metav1.NewTime(now.Add(-20 * time.Second)),
		},
	}
}

func status(name string, state corev1.ContainerState, last ...corev1.ContainerState) corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: name, Image: "example.com/" + name + ":1", State: state}
	if len(last) > 0 {
		s.LastTerminationState = last[0]
	}
	return s
}

// sidecar is an init container with restartPolicy Always.
func sidecar(started bool) corev1.ContainerStatus {
	of := status("mesh", running())
	of.Started = &started
	return of
}

func TestPod(t *testing.T) {
	ok := status("done", terminated(0, ""))
	ok.Ready = true
	waitFor := func(args ...string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "other"}, {Name: "gpu-node-wait", Args: args}}
		}
	}
	tests := map[string]struct {
		pod  *corev1.Pod
		want readiness.Verdict
	}{
		"ready": {pod: pod(condition(corev1.PodReady, corev1.ConditionTrue, "", ""))},
		"no status yet": {
			pod: pod(func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodPending} }),
			want: readiness.Verdict{
				State:   readiness.Progressing,
				Reason:  "PodPending",
				Message: "the pod is not scheduled yet",
			},
		},
		"unschedulable": {
			pod:  pod(condition(corev1.PodScheduled, corev1.ConditionFalse, "Unschedulable", "Insufficient memory")),
			want: readiness.Verdict{State: readiness.Failed, Reason: "Unschedulable", Message: "Insufficient memory"},
		},
		"scheduling gate": {
			pod: pod(condition(corev1.PodScheduled, corev1.ConditionFalse, "SchedulingGated", "gated")),
			want: readiness.Verdict{
				State:   readiness.Progressing,
				Reason:  "PodPending",
				Message: "the pod is not scheduled yet",
			},
		},
		"scheduled, no container yet": {
			pod:  pod(),
			want: readiness.Verdict{State: readiness.Progressing, Reason: "Starting", Message: "the pod is starting"},
		},
		"containers are being created": {
			pod:  pod(with(status("main", waiting("ContainerCreating", "")))),
			want: readiness.Verdict{State: readiness.Progressing, Reason: "Starting", Message: "the pod is starting"},
		},
		"waits for another operand": {
			pod: pod(
				waitFor("wait", "--for=driver,toolkit"),
				withInit(status("gpu-node-wait", running())),
				with(status("main", waiting("PodInitializing", ""))),
			),
			want: readiness.Verdict{
				State:   readiness.Progressing,
				Reason:  "WaitingForOperand",
				Message: "waiting for driver,toolkit",
			},
		},
		"a sidecar runs before the container crashes": {
			pod: pod(withInit(sidecar(true)), with(status("main", terminated(1, "boom")))),
			want: readiness.Verdict{
				State: readiness.Failed, Reason: "CrashLoopBackOff", Detail: "boom",
				Message: "container main: CrashLoopBackOff, exit code 1",
			},
		},
		"a sidecar runs before another init container": {
			pod:  pod(withInit(sidecar(true), status("init", running())), with(status("main", waiting("PodInitializing", "")))),
			want: readiness.Verdict{State: readiness.Progressing, Reason: "Starting", Message: "init container init is running"},
		},
		"a sidecar has not started": {
			pod:  pod(withInit(sidecar(false)), with(status("main", waiting("PodInitializing", "")))),
			want: readiness.Verdict{State: readiness.Progressing, Reason: "Starting", Message: "init container mesh is running"},
		},
		"a sidecar crashes": {
			pod: pod(
				withInit(status("mesh", terminated(1, "no certificate"))), with(status("main", waiting("PodInitializing", ""))),
			),
			want: readiness.Verdict{
				State: readiness.Failed, Reason: "CrashLoopBackOff", Detail: "no certificate",
				Message: "container mesh: CrashLoopBackOff, exit code 1",
			},
		},
		"waits for injected GPUs": {
			pod: pod(
				waitFor("wait", "--for=driver", "--injected"),
				withInit(status("gpu-node-wait", running())),
				with(status("main", waiting("PodInitializing", ""))),
			),
			want: readiness.Verdict{
				State:   readiness.Progressing,
				Reason:  "WaitingForOperand",
				Message: "waiting for driver and the container runtime",
			},
		},
		"waits without a flag": {
			pod: pod(waitFor("wait"), withInit(status("gpu-node-wait", running()))),
			want: readiness.Verdict{
				State:   readiness.Progressing,
				Reason:  "WaitingForOperand",
				Message: "waiting for another operand",
			},
		},
		"an init container runs": {
			pod: pod(withInit(ok, status("second", running()))),
			want: readiness.Verdict{
				State:   readiness.Progressing,
				Reason:  "Starting",
				Message: "init container second is running",
			},
		},
		"a container runs and is not ready": {
			pod: pod(withInit(ok), with(status("main", running()))),
			want: readiness.Verdict{
				State:   readiness.Progressing,
				Reason:  "Starting",
				Message: "container main is not ready",
			},
		},
		"an init container that has failed": {
			pod: pod(
				withInit(ok, status("second", terminated(2, "no driver"))),
				with(status("main", waiting("PodInitializing", ""))),
			),
			want: readiness.Verdict{
				State:   readiness.Failed,
				Reason:  "CrashLoopBackOff",
				Message: "container second: CrashLoopBackOff, exit code 2",
				Detail:  "no driver",
			},
		},
		"a container out of memory": {
			pod: pod(withInit(ok), with(status("main", waiting("CrashLoopBackOff", ""), corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{
					ExitCode:   137,
					Reason:     "OOMKilled",
					FinishedAt: metav1.NewTime(now),
				},
			}))),
			want: readiness.Verdict{
				State:   readiness.Failed,
				Reason:  "CrashLoopBackOff",
				Message: "container main: CrashLoopBackOff, exit code 137 (OOMKilled)",
			},
		},
		"a failed init container takes precedence": {
			pod: pod(withInit(status("init", terminated(1, ""))), with(status("main", terminated(2, "")))),
			want: readiness.Verdict{
				State:   readiness.Failed,
				Reason:  "CrashLoopBackOff",
				Message: "container init: CrashLoopBackOff, exit code 1",
			},
		},
		"a recovered container is not reported": {
			pod: pod(with(
				corev1.ContainerStatus{
					Name:                 "main",
					Ready:                true,
					State:                running(),
					LastTerminationState: terminated(1, ""),
				},
				status("side", running()),
			)),
			want: readiness.Verdict{
				State:   readiness.Progressing,
				Reason:  "Starting",
				Message: "container side is not ready",
			},
		},
		"an init container that succeeded after a failure is not reported": {
			pod: pod(withInit(status("init", terminated(0, ""), terminated(1, ""))), with(status("main", running()))),
			want: readiness.Verdict{
				State:   readiness.Progressing,
				Reason:  "Starting",
				Message: "container main is not ready",
			},
		},
		"an invalid configuration": {
			pod: pod(with(status("main", waiting("CreateContainerConfigError", `secret "x" not found`)))),
			want: readiness.Verdict{
				State:   readiness.Failed,
				Reason:  "CreateContainerConfigError",
				Message: "container main: CreateContainerConfigError",
				Detail:  `secret "x" not found`,
			},
		},
		"an invalid image name": {
			pod: pod(with(status("main", waiting("InvalidImageName", "")))),
			want: readiness.Verdict{
				State:   readiness.Failed,
				Reason:  "InvalidImageName",
				Message: "container main: InvalidImageName: example.com/main:1",
			},
		},
		"an image that must not be pulled": {
			pod: pod(with(status("main", waiting("ErrImageNeverPull", "")))),
			want: readiness.Verdict{
				State:   readiness.Failed,
				Reason:  "ErrImageNeverPull",
				Message: "container main: ErrImageNeverPull: example.com/main:1",
			},
		},
		"deleted, although ready": {
			pod: pod(condition(corev1.PodReady, corev1.ConditionTrue, "", ""), func(p *corev1.Pod) {
				p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			}),
			want: readiness.Verdict{
				State:   readiness.Progressing,
				Reason:  "Starting",
				Message: "the pod is being replaced",
			},
		},
		"evicted by the kubelet": {
			pod: pod(func(p *corev1.Pod) {
				p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted"
				p.Status.Message = "The node was low on resource: memory."
			}),
			want: readiness.Verdict{
				State:   readiness.Failed,
				Reason:  "ContainerFailed",
				Message: "the pod failed: Evicted: The node was low on resource: memory.",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, readiness.Pod(test.pod, "now", now)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			test.want.Outdated = true
			if diff := cmp.Diff(test.want, readiness.Pod(test.pod, "next", now)); diff != "" {
				t.Errorf("of an older template, -want +got:\n%s", diff)
			}
		})
	}
}

// The kubelet shows one failure in several ways, one after the other. They give the same verdict.
func TestAFailureHasOneVerdictInAllItsForms(t *testing.T) {
	tests := map[string]struct {
		forms []corev1.ContainerStatus
		want  readiness.Verdict
	}{
		"a crash loop: ended, waiting, running once more": {
			forms: []corev1.ContainerStatus{
				status("main", terminated(1, "boom")),
				status(
					"main",
					waiting("CrashLoopBackOff", "back-off 10s restarting failed container"),
					terminated(1, "boom"),
				),
				status(
					"main",
					waiting("CrashLoopBackOff", "back-off 20s restarting failed container"),
					terminated(1, "boom"),
				),
				status("main", running(), terminated(1, "boom")),
				status("main", waiting("ContainerCreating", ""), terminated(1, "boom")),
			},
			want: readiness.Verdict{
				State:   readiness.Failed,
				Reason:  "CrashLoopBackOff",
				Message: "container main: CrashLoopBackOff, exit code 1",
				Detail:  "boom",
			},
		},
		"an image that cannot be pulled": {
			forms: []corev1.ContainerStatus{
				status("main", waiting("ErrImagePull", "rpc error: code = Unknown desc = manifest unknown")),
				status("main", waiting("ImagePullBackOff", `Back-off pulling image "a": ErrImagePull: `+
					"rpc error: code = Unknown desc = manifest unknown")),
				status("main", waiting("RegistryUnavailable", "manifest unknown")),
			},
			want: readiness.Verdict{
				State:   readiness.Failed,
				Reason:  "ImagePullBackOff",
				Message: "container main: ImagePullBackOff: example.com/main:1",
				Detail:  "manifest unknown",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for i, form := range test.forms {
				if diff := cmp.Diff(test.want, readiness.Pod(pod(with(form)), "now", now)); diff != "" {
					t.Errorf("form %d of a container, -want +got:\n%s", i, diff)
				}
				if diff := cmp.Diff(test.want, readiness.Pod(pod(withInit(form)), "now", now)); diff != "" {
					t.Errorf("form %d of an init container, -want +got:\n%s", i, diff)
				}
			}
		})
	}
}

func TestPendingRuntimeClass(t *testing.T) {
	class := "nvidia"
	pending := func(state corev1.ConditionStatus) *corev1.Pod {
		found := pod()
		found.Spec.RuntimeClassName = &class
		found.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: state}}
		return found
	}
	terminating, plain := pending(corev1.ConditionFalse), pending(corev1.ConditionFalse)
	terminating.DeletionTimestamp, plain.Spec.RuntimeClassName = &metav1.Time{Time: now}, nil
	unknown := pod()
	unknown.Spec.RuntimeClassName = &class
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"without a sandbox":  {pending(corev1.ConditionFalse), class},
		"with a sandbox":     {pending(corev1.ConditionTrue), ""},
		"of an old kubelet":  {unknown, ""},
		"terminating":        {terminating, ""},
		"of no RuntimeClass": {plain, ""},
	} {
		if got := readiness.PendingRuntimeClass(test.pod); got != test.want {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

func TestValidatedDriver(t *testing.T) {
	const validated = "validated for driver instance "
	for name, test := range map[string]struct {
		messages      []string
		another, host bool
		of            types.UID
		found         int
	}{
		"none":                {messages: []string{"", "error"}},
		"this":                {messages: []string{"", validated + "a\n"}, of: "a", found: 1},
		"another":             {messages: []string{validated + "b"}, another: true, of: "b", found: 1},
		"the host's":          {messages: []string{validated + "none"}, another: true, host: true, found: 1},
		"without a name":      {messages: []string{validated + "since-7"}, another: true, found: 1},
		"of two init checks":  {messages: []string{validated + "a", validated + "a"}, of: "a", found: 2},
		"of different checks": {messages: []string{validated + "a", validated + "b"}, another: true, of: "a", found: 2},
	} {
		checked := pod()
		checked.Status.InitContainerStatuses = []corev1.ContainerStatus{status("waits", running(), corev1.ContainerState{})}
		for _, message := range test.messages {
			checked.Status.InitContainerStatuses = append(checked.Status.InitContainerStatuses,
				status("validation", terminated(0, message), corev1.ContainerState{}))
		}
		if got := readiness.ValidatedAnother(checked, "a"); got != test.another {
			t.Errorf("%s: another: %t", name, got)
		}
		if got := readiness.ValidatedHost(checked); got != test.host {
			t.Errorf("%s: the host's: %t", name, got)
		}
		if got := readiness.ValidatedDriverPod(checked); got != test.of {
			t.Errorf("%s: of pod %q", name, got)
		}
		if got := readiness.Validations(checked); len(got) != test.found ||
			len(got) > 0 && got[0].State.Terminated.Message != test.messages[len(test.messages)-test.found] {
			t.Errorf("%s: kept %v", name, got)
		}
	}
}

// A container without probes is ready whenever it runs. After a failure it counts as recovered once it has run for a
// minute.
func TestAFailedContainerRecoversAfterAMinute(t *testing.T) {
	crashed := readiness.Verdict{
		State:   readiness.Failed,
		Reason:  "CrashLoopBackOff",
		Message: "container main: CrashLoopBackOff, exit code 1",
		Detail:  "boom",
	}
	tests := map[string]struct {
		ran  time.Duration
		last corev1.ContainerState
		want readiness.Verdict
	}{
		"never failed":               {ran: time.Second},
		"exited with 0 a minute ago": {ran: time.Minute, last: terminated(0, "")},
		"failed, has just started":   {ran: time.Second, last: terminated(1, "boom"), want: crashed},
		"failed, has run for almost a minute": {
			ran: 59 * time.Second, last: terminated(1, "boom"), want: crashed,
		},
		"failed, has run for a minute": {ran: time.Minute, last: terminated(1, "boom")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			started := now.Add(-test.ran)
			main := status(
				"main",
				corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(started)}},
				test.last,
			)
			main.Ready = true
			if test.want.State == readiness.Failed {
				test.want.Until = started.Add(time.Minute)
			}
			failed := pod(with(main))
			if exit := readiness.UnrecoveredExit(failed, now); (exit != nil) != (test.want.State == readiness.Failed) {
				t.Errorf("the last exit is %v", exit)
			}
			got := readiness.Pod(pod(condition(corev1.PodReady, corev1.ConditionTrue, "", ""), with(main)), "now", now)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestNeverTerminated(t *testing.T) {
	ready := func(status corev1.ConditionStatus) []corev1.PodCondition {
		return []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}
	for name, test := range map[string]struct {
		status corev1.PodStatus
		want   bool
	}{
		"no condition": {},
		"not ready":    {status: corev1.PodStatus{Conditions: ready(corev1.ConditionFalse)}},
		"ready": {want: true, status: corev1.PodStatus{
			Conditions: ready(corev1.ConditionTrue), ContainerStatuses: []corev1.ContainerStatus{{}},
		}},
		"restarted": {status: corev1.PodStatus{
			Conditions:        ready(corev1.ConditionTrue),
			ContainerStatuses: []corev1.ContainerStatus{{}, {LastTerminationState: ended}},
		}},
	} {
		if got := readiness.NeverTerminated(&corev1.Pod{Status: test.status}); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A pod is ready since its current sandbox exists, whatever its readiness was before.
func TestSandboxReadySince(t *testing.T) {
	sandbox, ready := time.Unix(20, 0), time.Unix(10, 0)
	condition := func(kind corev1.PodConditionType, status corev1.ConditionStatus, since time.Time) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: metav1.NewTime(since)}
	}
	isReady := condition(corev1.PodReady, corev1.ConditionTrue, ready)
	for name, test := range map[string]struct {
		conditions []corev1.PodCondition
		want       time.Time
	}{
		"nothing is known": {},
		"ready":            {conditions: []corev1.PodCondition{isReady}, want: ready},
		"a sandbox": {want: sandbox, conditions: []corev1.PodCondition{
			isReady, condition(corev1.PodReadyToStartContainers, corev1.ConditionTrue, sandbox),
		}},
		"no sandbox": {want: ready, conditions: []corev1.PodCondition{
			isReady, condition(corev1.PodReadyToStartContainers, corev1.ConditionFalse, sandbox),
		}},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{Conditions: test.conditions}}
		if got := readiness.SandboxReadySince(pod); !got.Equal(test.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}
