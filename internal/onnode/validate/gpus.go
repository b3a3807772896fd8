package validate

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// queryGPUs makes nvidia-smi initialise every GPU and print one line for each.
var queryGPUs = []string{"--query-gpu=index,uuid,driver_version,pci.bus_id", "--format=csv,noheader"}

// gpu is a line of this query.
type gpu struct {
	uuid, driverVersion string
	// address is the name of the device in sysfs.
	address string
}

var (
	uuidPattern    = regexp.MustCompile(`^GPU-[0-9A-Za-z-]+$`)
	versionPattern = regexp.MustCompile(`^[0-9]+(\.[0-9]+)+$`)
	busPattern     = regexp.MustCompile(`^([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])$`)
	// lostPattern is what nvidia-smi prints, between the lines of the other GPUs, for a GPU that it cannot
	// reach. It then exits with 15 or 255 or, with some drivers, with 0.
	lostPattern = regexp.MustCompile(`(?m)^Unable to determine the device handle for (?:GPU|gpu)[ ]?([^\n]*)`)
	// addressPattern matches the GPU's address in the rest of that line.
	addressPattern = regexp.MustCompile(`[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]`)
)

// parseGPUs reads the output of the query. It fails if there is no GPU, or one that does not answer.
func parseGPUs(out []byte) ([]gpu, error) {
	if address := lostGPU(out); address != "" {
		return nil, gpuLost(address)
	}
	var gpus []gpu
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(strings.ToUpper(line), "WARNING") {
			continue // A warning of the infoROM, for example, which also has an exit code.
		}
		if strings.HasPrefix(line, "No devices") {
			break
		}
		found, err := parseGPU(line)
		if err != nil {
			return nil, err
		}
		gpus = append(gpus, found)
	}
	if len(gpus) == 0 {
		return nil, errors.New("nvidia-smi succeeds but lists no GPU; see the kernel log for errors of the GPU")
	}
	return gpus, nil
}

func parseGPU(line string) (gpu, error) {
	fields := strings.Split(line, ", ")
	if len(fields) != 4 {
		return gpu{}, fmt.Errorf(
			"nvidia-smi prints %q, which is not a GPU's index, UUID, driver version and bus address; check that it belongs "+
				"to the driver", firstLine([]byte(line)))
	}
	if _, err := strconv.ParseUint(fields[0], 10, 16); err != nil {
		return gpu{}, fmt.Errorf(
			"nvidia-smi prints a GPU with the index %q, which is not a number; check that it belongs to the driver", fields[0])
	}
	address, ok := sysfsAddress(fields[3])
	if !uuidPattern.MatchString(fields[1]) || !versionPattern.MatchString(fields[2]) || !ok {
		// For example [Unknown Error], [GPU is lost], ERR! and [N/A].
		return gpu{}, fmt.Errorf(
			"GPU %s does not answer: nvidia-smi prints %q; see the kernel log for Xid errors, and reset the GPU or reboot "+
				"the node", fields[0], firstLine([]byte(line)))
	}
	return gpu{uuid: fields[1], driverVersion: fields[2], address: address}, nil
}

// sysfsAddress converts the address of nvidia-smi, 00000000:3B:00.0, to that of sysfs, 0000:3b:00.0.
func sysfsAddress(address string) (string, bool) {
	parts := busPattern.FindStringSubmatch(address)
	if parts == nil {
		return "", false
	}
	domain, err := strconv.ParseUint(parts[1], 16, 32)
	return fmt.Sprintf("%04x:%s", domain, strings.ToLower(parts[2])), err == nil
}

// lostGPU returns the name of the GPU that nvidia-smi cannot reach: its address, if that is printed. Empty if it
// reaches all.
func lostGPU(out []byte) string {
	match := lostPattern.FindSubmatch(out)
	if match == nil {
		return ""
	}
	if address, ok := sysfsAddress(string(addressPattern.Find(match[1]))); ok {
		return address
	}
	name, _, _ := strings.Cut(string(match[1]), ":")
	return firstLine([]byte(name))
}

func gpuLost(names ...string) error {
	return fmt.Errorf(
		"GPU %s has fallen off the bus or cannot be reached; see the kernel log for Xid 79, and reset the GPU or reboot "+
			"the node", strings.Join(names, ", "))
}
