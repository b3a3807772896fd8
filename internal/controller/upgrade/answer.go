package upgrade

import "time"

// answer is why the API server refuses a call that is repeated, and since when this text is reported. Later answers may
// differ in a time or in the number of the request, and each text that is reported is written to the cluster.
type answer struct {
	text  string
	since time.Time
}

// next returns what is reported after another answer: this one, until it is so old that the next one may have another
// cause.
func (a answer) next(text string, now time.Time, keep time.Duration) answer {
	if a.text != "" && now.Before(a.since.Add(keep)) {
		return a
	}
	return answer{text: text, since: now}
}
