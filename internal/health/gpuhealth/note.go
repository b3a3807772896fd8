package gpuhealth

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Note is what is worth knowing of a GPU that is healthy as far as is known, or of the node.
type Note struct {
	// PCI is the address of the device; empty for the node.
	PCI string `json:"pci,omitempty"`
	// UUID of the GPU; empty if it is not known.
	UUID string `json:"uuid,omitempty"`
	// Class is App, Watch or Infra.
	Class Class `json:"class"`
	// Reason is a word in CamelCase.
	Reason string `json:"reason"`
	// Xid is the number of the error; 0 if NVML has shown it.
	Xid int `json:"xid,omitempty"`
	// Since is when it was first seen. A repeated error of a program is a new note after an hour.
	Since time.Time `json:"since"`
}

// Past is a fault that has been, also in an earlier boot.
type Past struct {
	PCI  string `json:"pci"`
	UUID string `json:"uuid,omitempty"`
	// Reason of the fault.
	Reason string `json:"reason"`
	// At is when it occurred last, and Boot the ID of the boot in which it did.
	At   time.Time `json:"at"`
	Boot string    `json:"boot,omitempty"`
}

// Is reports whether the fault was of this GPU. A GPU whose unique ID is not known is recognized by its address.
func (p Past) Is(pci, uuid string) bool {
	if p.UUID != "" && uuid != "" {
		return p.UUID == uuid
	}
	return p.PCI == pci
}

// Text describes the note: GPU 0000:1b:00.0, Xid 13.
func (n Note) Text() string {
	where := "the driver of the node"
	if n.PCI != "" {
		where = gpuName(n.PCI, n.UUID)
	}
	if n.Xid != 0 {
		return fmt.Sprintf("%s, Xid %d", where, n.Xid)
	}
	return where
}

// noteOrder has the classes of notes; of too many notes the last ones are left out.
var noteOrder = []Class{Infra, Watch, App}

// encodedNotes returns the notes as they are encoded: the most important ones, the latest first.
func encodedNotes(notes []Note) []Note {
	notes = slices.Clone(notes)
	for i := range notes {
		notes[i].Since = toSecond(notes[i].Since)
	}
	slices.SortFunc(notes, func(a, b Note) int {
		return cmp.Or(cmp.Compare(slices.Index(noteOrder, a.Class), slices.Index(noteOrder, b.Class)),
			b.Since.Compare(a.Since), strings.Compare(a.PCI, b.PCI), strings.Compare(a.Reason, b.Reason),
			cmp.Compare(a.Xid, b.Xid))
	})
	return notes[:min(len(notes), MaxNotes)]
}

// encodedPast returns the earlier faults as they are encoded: the latest ones, the last one first.
func encodedPast(past []Past) []Past {
	past = slices.Clone(past)
	for i := range past {
		past[i].At = toSecond(past[i].At)
	}
	slices.SortFunc(past, func(a, b Past) int {
		return cmp.Or(b.At.Compare(a.At), strings.Compare(a.PCI, b.PCI), strings.Compare(a.Reason, b.Reason))
	})
	return past[:min(len(past), MaxPast)]
}

func toSecond(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

func areValid(notes []Note, past []Past) bool {
	if len(notes) > MaxNotes || len(past) > MaxPast {
		return false
	}
	return !slices.ContainsFunc(notes, func(n Note) bool { return !n.isValid() }) &&
		!slices.ContainsFunc(past, func(p Past) bool { return !p.isValid() })
}

func (n Note) isValid() bool {
	return (n.PCI == "" || address.MatchString(n.PCI)) && uuid.MatchString(n.UUID) && word.MatchString(n.Reason) &&
		slices.Contains(noteOrder, n.Class) && n.Xid >= 0 && !n.Since.IsZero()
}

func (p Past) isValid() bool {
	return address.MatchString(p.PCI) && uuid.MatchString(p.UUID) && word.MatchString(p.Reason) && !p.At.IsZero()
}
