package xid

import (
	"regexp"
	"strconv"
	"strings"
)

// Event is what a line of the kernel log reports about one device.
type Event struct {
	// PCI is the address of the device, such as 0000:1b:00.0.
	PCI string
	// Xid is the number of a GPU's error, SXid that of an NVSwitch's; 0 for none. A reset has neither.
	Xid, SXid int
	// PID is the process that the error is attributed to; 0 if unknown.
	PID int
	// Action is what the GPU needs, for Xid 154: one of the Action constants, or a text that is not known.
	Action Action
	// Fatal: the error of the NVSwitch is fatal.
	Fatal bool
	// Reset: the device has been reset, and nothing of its earlier errors is left.
	Reset bool
}

var (
	xidLine = regexp.MustCompile(
		`^NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)(?: GPU-I:[0-9]+)?\): ([0-9]{1,3})(?:,\s*(.*))?$`)
	// The lines with the data of an error repeat its number, and do not have its severity.
	sxidLine = regexp.MustCompile(
		`^nvidia-nvswitch[0-9]+: SXid \((?:PCI:)?([0-9a-fA-F:.]+)\): ([0-9]{1,6}), (Fatal|Non-fatal)\b`)
	resetLine   = regexp.MustCompile(`^gpu-operator: GPU ([0-9a-fA-F:.]+) has been reset$`)
	process     = regexp.MustCompile(`^pid='?([0-9]+)'?`)
	parentheses = regexp.MustCompile(`\(([^()]*)\)[^()]*$`)
	address     = regexp.MustCompile(`^([0-9a-f]{4}|[0-9a-f]{8}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?$`)
)

// ResetLine returns the line that reports the reset of a device, for a person or a program that has made it.
func ResetLine(pci string) string { return "gpu-operator: GPU " + pci + " has been reset" }

// Parse returns what a line of the kernel log reports, and whether it reports an error or a reset. fromKernel: the
// kernel itself has written the line, not a program; errors are taken from the kernel alone.
func Parse(line string, fromKernel bool) (Event, bool) {
	if !fromKernel {
		return parseReset(line)
	}
	if found := xidLine.FindStringSubmatch(line); found != nil {
		return parseXid(found[1], found[2], found[3])
	}
	if found := sxidLine.FindStringSubmatch(line); found != nil {
		pci, isAddress := Address(found[1])
		number, err := strconv.Atoi(found[2])
		return Event{PCI: pci, SXid: number, Fatal: found[3] == "Fatal"}, isAddress && err == nil && number > 0
	}
	return Event{}, false
}

func parseReset(line string) (Event, bool) {
	found := resetLine.FindStringSubmatch(strings.TrimSpace(line))
	if found == nil {
		return Event{}, false
	}
	pci, isAddress := Address(found[1])
	return Event{PCI: pci, Reset: true}, isAddress
}

func parseXid(device, digits, text string) (Event, bool) {
	pci, isAddress := Address(device)
	number, err := strconv.Atoi(digits)
	if !isAddress || err != nil || number == 0 {
		return Event{}, false
	}
	event := Event{PCI: pci, Xid: number}
	if found := process.FindStringSubmatch(text); found != nil {
		// A number that is too large stays 0, unknown.
		event.PID, _ = strconv.Atoi(found[1])
	}
	if number == RecoveryAction {
		if found := parentheses.FindStringSubmatch(text); found != nil {
			event.Action = Action(strings.TrimSpace(found[1]))
		}
	}
	return event, true
}

// Address returns a PCI address in the form of sysfs: lower case, a domain of four digits unless it needs more, and a
// function. The driver leaves out the function, and its library has eight digits of the domain.
func Address(text string) (string, bool) {
	found := address.FindStringSubmatch(strings.ToLower(text))
	if found == nil {
		return "", false
	}
	domain := found[1]
	if short, zeros := strings.CutPrefix(domain, "0000"); zeros && len(short) == 4 {
		domain = short
	}
	function := found[4]
	if function == "" {
		function = "0"
	}
	return domain + ":" + found[2] + ":" + found[3] + "." + function, true
}
