package simulator

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestReadProgram(t *testing.T) {
	tests := map[string]struct {
		command, args []string
		env           []corev1.EnvVar
		want          program
	}{
		"parses a list of markers": {
			command: []string{"/usr/bin/gpu-node"}, args: []string{"wait", "--for=driver,toolkit"},
			want: program{verb: verbWait, markers: []string{"driver", "toolkit"}},
		},
		"parses a flag given twice": {
			command: []string{"gpu-node", "wait", "--for", "driver", "--for=plugin"},
			want:    program{verb: verbWait, markers: []string{"driver", "plugin"}},
		},
		"parses what is validated": {
			command: []string{"/x/gpu-node"}, args: []string{"validate", "driver", "--host-root=/host"},
			want: program{verb: verbValidate, markers: []string{"driver"}},
		},
		"stops at another program's arguments": {
			command: []string{"/x/gpu-node", "exec", "--", "run", "--marker=toolkit"},
			want:    program{verb: verbExec, markers: []string{"driver"}},
		},
		"waits for the driver in the same pod": {
			command: []string{"gpu-node", "exec", "--driver-container", "--", "install"},
			want:    program{verb: verbExec, afterDriver: true},
		},
		"treats the name of another program as other": {command: []string{"sh", "-c", "gpu-node wait --for=driver"}},
		"understands discovery": {
			command: []string{"/usr/bin/gpu-node"}, args: []string{"discover", "--once"}, want: program{verb: verbDiscover},
		},
		"recognises NVIDIA's driver manager": {
			command: []string{"driver-manager"}, args: []string{"uninstall_driver"}, want: program{manager: true},
		},
		"recognises the CUDA program": {
			command: []string{"/usr/bin/gpu-node-cuda"}, want: program{verb: verbCompute},
		},
		"recognises a loop that waits for a marker": {
			command: []string{"sh", "-c"},
			args:    []string{"until [ -f /run/nvidia/validations/toolkit-ready ]; do echo not yet; sleep 7; done"},
			want:    program{verb: verbWait, markers: []string{"toolkit"}, period: 7 * time.Second},
		},
		"treats another loop as other": {
			command: []string{"sh", "-c", "until [ -d /run/nvidia/driver ]; do sleep 5; done"},
		},
		"recognises NVIDIA's validator": {
			command: []string{"sh", "-c"}, args: []string{"nvidia-validator"},
			env:  []corev1.EnvVar{{Name: "WITH_WAIT", Value: "true"}, {Name: "COMPONENT", Value: "plugin"}},
			want: program{verb: verbValidate, markers: []string{"plugin"}, period: 5 * time.Second},
		},
		"knows that its CUDA validation polls a pod": {
			command: []string{"sh", "-c", "nvidia-validator"}, env: []corev1.EnvVar{{Name: "COMPONENT", Value: "cuda"}},
			want: program{verb: verbValidate, markers: []string{"cuda"}, period: 5 * time.Second, polls: true},
		},
		"treats a validator of nothing as other":     {command: []string{"sh", "-c", "nvidia-validator"}},
		"treats an image's default command as other": {},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := readProgram(corev1.Container{Command: test.command, Args: test.args, Env: test.env})
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}
