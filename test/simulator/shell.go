package simulator

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// validatorProgram is NVIDIA's validator. It has no arguments: componentVariable selects what it validates.
	validatorProgram  = "nvidia-validator"
	componentVariable = "COMPONENT"
	// componentCUDA runs a pod and polls it.
	componentCUDA = "cuda"
	// validatorPeriod is how often it retries.
	validatorPeriod = 5 * time.Second
)

// shellWait is a loop that waits for a marker in the folder of validations, and sleeps some seconds between two looks.
var shellWait = regexp.MustCompile(`until \[ -f /run/nvidia/validations/([a-z]+)-ready \].*\bsleep (\d+)`)

// readShell recognises what the init containers of NVIDIA's operator run by a shell: its validator, and loops that wait
// for a marker.
func readShell(argv []string, variables []corev1.EnvVar) program {
	if len(argv) != 3 || argv[1] != "-c" || !slices.Contains([]string{"sh", "bash"}, path.Base(argv[0])) {
		return program{}
	}
	script := strings.TrimSpace(argv[2])
	if script == validatorProgram {
		return readValidator(variables)
	}
	if parts := shellWait.FindStringSubmatch(script); parts != nil {
		// The expression only matches digits; a number out of range is 0.
		pause, _ := strconv.Atoi(parts[2])
		return program{verb: verbWait, markers: parts[1:2], period: time.Duration(pause) * time.Second}
	}
	return program{}
}

// readValidator returns what NVIDIA's validator does with these variables.
func readValidator(variables []corev1.EnvVar) program {
	i := slices.IndexFunc(variables, func(v corev1.EnvVar) bool { return v.Name == componentVariable })
	if i < 0 {
		return program{}
	}
	component := variables[i].Value
	return program{
		verb: verbValidate, markers: []string{component}, period: validatorPeriod, polls: component == componentCUDA,
	}
}
