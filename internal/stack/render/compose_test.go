package render_test

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/stack/render"
)

// A name that does not exist is an error: the setting would have no effect.
func TestAnInstanceAddsOnlyToWhatExists(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*operand.Instance)
		want   string
	}{
		"a file that does not exist": {
			func(i *operand.Instance) { i.ContainerFiles = append(i.ContainerFiles, "none") },
			"there is no asset driver/containers/none.yaml",
		},
		"settings of a container that the pod does not have": {
			func(i *operand.Instance) { i.Additions["none"] = operand.Additions{} },
			"additions to a container that does not exist, one of [k8s-driver-manager none nvidia-driver-ctr]",
		},
		"another value": {
			func(i *operand.Instance) { i.Values = struct{}{} }, "can't evaluate field",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := situation{}.plan(t)
			at := slices.IndexFunc(p.Steps, func(s plan.Step) bool { return s.Operand.Name == "driver" })
			test.change(&p.Steps[at].Instances[0])
			if _, err := render.Step(p, p.Steps[at], owner, nil); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %q", err, test.want)
			}
		})
	}
}

func TestEveryContainerFileIsUsed(t *testing.T) {
	used := map[string]bool{}
	for _, s := range scenarios {
		for _, sets := range s.daemonSets(t) {
			for _, ds := range sets {
				for _, c := range containers(&ds.Spec.Template.Spec) {
					used[c.Name] = true
				}
			}
		}
	}
	for file := range assetFiles(t) {
		dir, name := path.Dir(file), strings.TrimSuffix(path.Base(file), ".yaml")
		if isContainer := dir == "." || path.Base(dir) == "containers"; isContainer && !used[name] {
			t.Errorf("no instance has the container of %s", file)
		}
	}
}

// Additions come after what the template has. A probe replaces the template's.
func TestSettingsOfContainers(t *testing.T) {
	const name = "nvidia-dcgm-exporter"
	before := container(t, situation{}.daemonSet(t, "dcgm-exporter"), name)
	settings := operand.Additions{
		Args:          []string{"--debug"},
		Env:           operand.Env{{Name: "A", Value: "1"}},
		EnvFrom:       []corev1.EnvFromSource{{Prefix: "P_"}},
		Mounts:        []corev1.VolumeMount{{Name: "more", MountPath: "/more"}},
		StartupProbe:  &corev1.Probe{PeriodSeconds: 7},
		LivenessProbe: &corev1.Probe{PeriodSeconds: 8},
	}
	want := before.DeepCopy()
	want.Args = append(want.Args, settings.Args...)
	want.Env = append(want.Env, settings.Env...)
	want.EnvFrom, want.VolumeMounts = settings.EnvFrom, append(want.VolumeMounts, settings.Mounts...)
	want.StartupProbe, want.LivenessProbe = settings.StartupProbe, settings.LivenessProbe

	p := situation{}.plan(t)
	at := slices.IndexFunc(p.Steps, func(s plan.Step) bool { return s.Operand.Name == "dcgm-exporter" })
	instance := &p.Steps[at].Instances[0]
	instance.Additions = map[string]operand.Additions{name: settings}
	instance.Volumes = []corev1.Volume{{Name: "more"}}
	objects, err := render.Step(p, p.Steps[at], owner, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		ds, isDaemonSet := object.(*appsv1.DaemonSet)
		if !isDaemonSet {
			continue
		}
		if diff := cmp.Diff(*want, container(t, ds, name)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		isMore := func(v corev1.Volume) bool { return v.Name == "more" }
		if volumes := ds.Spec.Template.Spec.Volumes; !slices.ContainsFunc(volumes, isMore) {
			t.Errorf("the pod has volumes %v", volumes)
		}
	}
}
