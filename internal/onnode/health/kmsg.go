package health

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// maxRecord, in bytes, is more than a record of the kernel log can have: a read with a smaller buffer fails.
const maxRecord = 64 << 10

// record is one record of the kernel log.
type record struct {
	// sequence counts the records of this boot.
	sequence uint64
	// at is the time since the boot, as the kernel measures it.
	at time.Duration
	// fromKernel: the kernel has written it, not a program through /dev/kmsg.
	fromKernel bool
	text       string
}

// kernelLog reads records in the format of /dev/kmsg (Documentation/ABI/testing/dev-kmsg).
type kernelLog struct {
	lines *bufio.Reader
	// lost is called when the kernel has overwritten records that were not read yet.
	lost func()
}

func newKernelLog(from io.Reader, lost func()) *kernelLog {
	return &kernelLog{lines: bufio.NewReaderSize(from, maxRecord), lost: lost}
}

// next returns the next record, and waits for it. It skips what is no record.
func (l *kernelLog) next() (record, error) {
	for {
		line, err := l.lines.ReadSlice('\n')
		switch {
		case errors.Is(err, syscall.EPIPE):
			l.lost()
			continue
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return record{}, fmt.Errorf("the kernel log cannot be read: %w", err)
		}
		if found, ok := parseRecord(string(line)); ok {
			return found, nil
		}
	}
}

// facilityKernel is the facility of the kernel's own records; the kernel does not let programs use it.
const facilityKernel = 0

// parseRecord parses "PRIORITY,SEQUENCE,MICROSECONDS,FLAGS[,...];TEXT". Lines that begin with a space belong to the
// record before.
func parseRecord(line string) (record, bool) {
	header, text, found := strings.Cut(strings.TrimSuffix(line, "\n"), ";")
	fields := strings.Split(header, ",")
	if !found || len(fields) < 3 || strings.HasPrefix(line, " ") {
		return record{}, false
	}
	priority, err := strconv.ParseUint(fields[0], 10, 32)
	if err != nil {
		return record{}, false
	}
	sequence, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return record{}, false
	}
	micros, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil || micros < 0 {
		return record{}, false
	}
	return record{
		sequence: sequence, at: time.Duration(micros) * time.Microsecond, fromKernel: priority>>3 == facilityKernel,
		text: strings.TrimSuffix(text, "\r"),
	}, true
}
