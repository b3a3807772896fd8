package events

// Remembered returns how many names of Events are in memory.
func (r *Recorder) Remembered() int { return len(r.written) }
