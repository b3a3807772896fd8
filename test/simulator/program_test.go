package simulator

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestReadProgram(t *testing.T) {
	tests := map[string]struct {
		command, args []string
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
		"treats an image's default command as other": {},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := readProgram(corev1.Container{Command: test.command, Args: test.args})
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}
