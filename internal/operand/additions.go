package operand

import corev1 "k8s.io/api/core/v1"

// Additions are optional settings of one container: what an instance decides in Go and its templates leave out.
// Lists are appended to those of the template; a probe replaces that of the template.
type Additions struct {
	Args    []string
	Env     Env
	EnvFrom []corev1.EnvFromSource
	Mounts  []corev1.VolumeMount

	StartupProbe, LivenessProbe, ReadinessProbe *corev1.Probe
}

// Env is a list of environment variables.
type Env []corev1.EnvVar

// Add appends a variable.
func (e *Env) Add(name, value string) { *e = append(*e, corev1.EnvVar{Name: name, Value: value}) }

// AddIf appends a variable if the condition is true.
func (e *Env) AddIf(condition bool, name, value string) {
	if condition {
		e.Add(name, value)
	}
}

// AddCDIHook appends the variable with the path of the hook that CDI specifications name, where the operator installs
// the toolkit: its image has the hook.
func (e *Env) AddCDIHook(in Input) {
	e.AddIf(in.OwnToolkit(), "NVIDIA_CDI_HOOK_PATH", in.Spec.Paths().ToolkitInstallDir+"/toolkit/nvidia-cdi-hook")
}
