package gpuhealth

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const (
	// MaxFaults is how many faults a report has at most: more devices than a node has.
	MaxFaults = 64
	// MaxNotes is how many notes a report has at most, and MaxPast how many earlier faults.
	MaxNotes = 32
	MaxPast  = 32
	// maxSize, in bytes, is the longest report that is decoded.
	maxSize = 32 << 10
)

// Report is what the health agent of a node reports. A node without faults has one, too: it shows that the agent runs.
type Report struct {
	// Boot is the ID of the boot in which the faults occurred: they end with it.
	Boot string `json:"boot"`
	// Sequence is the number of the last record of the kernel log that the faults follow from.
	Sequence uint64 `json:"seq,omitempty"`
	// Faults of the GPUs and NVSwitches, at most one for each, worst first.
	Faults []Fault `json:"faults"`
	// Notes are what else there is to know: no GPU is unhealthy because of them.
	Notes []Note `json:"notes,omitempty"`
	// Past are faults that matter when they occur again, also after a boot.
	Past []Past `json:"past,omitempty"`
}

// Encode returns the report as the value of the annotation. It sorts the faults: the worst first, then by address.
func (r Report) Encode() (string, error) {
	r.Faults = append([]Fault{}, r.Faults...)
	slices.SortFunc(r.Faults, func(a, b Fault) int {
		return cmp.Or(b.Class.Compare(a.Class), strings.Compare(a.PCI, b.PCI))
	})
	r.Faults = r.Faults[:min(len(r.Faults), MaxFaults)]
	for i := range r.Faults {
		r.Faults[i].Since = toSecond(r.Faults[i].Since)
	}
	r.Notes, r.Past = encodedNotes(r.Notes), encodedPast(r.Past)
	encoded, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encode the report of GPU faults: %w", err)
	}
	return string(encoded), nil
}

// The forms of the texts in a report, which are shown to users: others than the agent may have written it.
var (
	address = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
	uuid    = regexp.MustCompile(`^(GPU-[0-9a-f-]{1,60})?$`)
	word    = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,63}$`)
	signal  = regexp.MustCompile(`^([a-z][a-z0-9 ]{0,63})?$`)
	bootID  = regexp.MustCompile(`^[0-9a-zA-Z-]{1,64}$`)
)

// IsUUID reports whether a report can have the text as the UUID of a GPU.
func IsUUID(text string) bool { return text != "" && uuid.MatchString(text) }

// Decode returns the report in the value of the annotation. It fails if the value is not one that Encode returns.
func Decode(value string) (Report, error) {
	if len(value) > maxSize {
		return Report{}, fmt.Errorf("the report of GPU faults has %d bytes, more than %d", len(value), maxSize)
	}
	var report Report
	if err := json.Unmarshal([]byte(value), &report); err != nil {
		return Report{}, fmt.Errorf("the report of GPU faults is not one of the health agent: %w", err)
	}
	if !bootID.MatchString(report.Boot) || len(report.Faults) > MaxFaults {
		return Report{}, fmt.Errorf(
			"the report of GPU faults is not one of the health agent: it has boot %.64q and %d faults",
			report.Boot, len(report.Faults))
	}
	for i, fault := range report.Faults {
		if !fault.isValid() {
			return Report{}, fmt.Errorf("the report of GPU faults is not one of the health agent: fault %d is malformed", i)
		}
	}
	if !areValid(report.Notes, report.Past) {
		return Report{}, errors.New("the report of GPU faults is not one of the health agent: its notes are malformed")
	}
	return report, nil
}

func (f Fault) isValid() bool {
	causes := 0
	for _, is := range []bool{f.Xid > 0, f.SXid > 0, f.NVML != ""} {
		if is {
			causes++
		}
	}
	return address.MatchString(f.PCI) && uuid.MatchString(f.UUID) && word.MatchString(f.Reason) &&
		signal.MatchString(f.NVML) && f.Class.IsUnhealthy() && causes == 1 && !f.Since.IsZero()
}

// Lost returns how many GPUs are lost.
func (r Report) Lost() int {
	count := 0
	for _, fault := range r.Faults {
		if fault.IsLost() {
			count++
		}
	}
	return count
}

// Text describes the faults, separated by semicolons; of many, the first ones and how many more there are.
func (r Report) Text() string {
	const shown = 3
	var texts []string
	for _, fault := range r.Faults[:min(len(r.Faults), shown)] {
		texts = append(texts, fault.Text())
	}
	if more := len(r.Faults) - shown; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}
